"""The machine this agent runs on: facts and arithmetic shared by several actors. No actor lives here."""
