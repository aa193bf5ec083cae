"""Export of a node's metrics by OpenTelemetry's protocol (OTLP). Its packages are imported only where configured."""
