"""The audit log: decisions about principals as JSON lines. Knows neither requests' contents nor the authorizer."""
