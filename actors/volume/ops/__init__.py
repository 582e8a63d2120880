"""Operations on volumes and mounts; they run in the helper process."""
