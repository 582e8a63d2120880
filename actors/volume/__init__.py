"""The volume manager: sets up the volumes of pods before their containers start, and removes them afterwards."""
