"""Values that all other rooms share: the desired and the observed pod, reasons, back-off."""
