"""Pure decisions: what each pod's volumes need, from which claims, and whether they are ready."""
