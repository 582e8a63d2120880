"""Pure decisions about init containers, resizes and terminations."""
