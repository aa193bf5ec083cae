"""The page of metrics, the dashboards and the alert rules, against a running cluster."""
