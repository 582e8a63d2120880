"""Images of the embedded runtime: documents and limits, the store on disk, and the sources that fill it."""
