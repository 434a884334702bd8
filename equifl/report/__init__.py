"""From records to what people look at: numbers first, drawn second."""
