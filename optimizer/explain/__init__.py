"""Why this plan: the plan as text, json, mermaid and dot, the plans it beat, and the rates at which it changes."""
