"""`supervisor bench`: figures of the running agent on its node, beside a floor that is measured in the same minute."""
