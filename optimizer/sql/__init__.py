"""From continuous SQL and catalog text to the algebra: parse, bind, decorrelate, build, rewrite."""
