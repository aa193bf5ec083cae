"""Export of a node's metrics and of spans of its requests by OpenTelemetry's protocol (OTLP).

Its packages are imported only where configured.
"""
