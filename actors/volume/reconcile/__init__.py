"""The loop that mounts, remounts and unmounts until the state is the desired one."""
