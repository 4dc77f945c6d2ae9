"""One module a kernel family: its problem with torch alone. `tilegate repro` puts it beside the kernel's source."""
