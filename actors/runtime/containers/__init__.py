"""Operations on containers: create, start, stop, remove and ExecSync."""
