"""Which calibration profile holds: the one that was named, else this machine's own, else the shipped one."""

from __future__ import annotations

import os
from pathlib import Path

from costmodel.machine import fingerprint, hardware, other_versions
from costmodel.profile import CalibrationProfile, ProfileError, default_profile, load_profile

_REMEDY = "run penstock calibrate to measure this one"


def own_profile_path() -> Path:
    """Where `penstock calibrate` keeps the profile of this machine."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "penstock" / "profile.json"


def find_profile(explicit: Path | None) -> tuple[CalibrationProfile, str, str | None]:
    """The profile, the name it goes by, and a warning where its costs may not be those of this machine."""
    if explicit is not None:
        profile = load_profile(explicit)
        return profile, explicit.stem, _warning(profile, explicit.stem)
    own = own_profile_path()
    if own.exists():
        try:
            profile = load_profile(own)
        except ProfileError as error:
            return default_profile(), "default", f"{error} The shipped profile is used: run penstock calibrate again"
        if hardware(profile.machine) == hardware(fingerprint()):
            return profile, profile.name, _warning(profile, profile.name)
        why = f"{own} was measured on another machine ({hardware(profile.machine)}) and is passed over"
        return default_profile(), "default", f"{why}; {_REMEDY}"
    return default_profile(), "default", _warning(default_profile(), "default")


def _warning(profile: CalibrationProfile, name: str) -> str | None:
    here = fingerprint()
    if hardware(profile.machine) != hardware(here):
        where = hardware(profile.machine) or "unknown"
        return f"profile {name} was measured on another machine ({where}); {_REMEDY}"
    if others := other_versions(profile.machine, here):
        return f"profile {name} was measured with other engines (here {', '.join(others)}); {_REMEDY}"
    return None
