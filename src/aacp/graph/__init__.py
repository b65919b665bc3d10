"""From a module to plain data and back: tracing, rules (one function per operator), surgery, verification."""
