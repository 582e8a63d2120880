"""Values that all other rooms use: desired pods, the runtime's view of a pod, reasons, back-off."""
