"""Settings of OAUTHBEARER with a token endpoint, its messages, and the times of refreshes."""

import pytest

from broker.config.definitions import BROKER_KEYS
from broker.config.errors import ConfigError
from broker.sasl.client.assertions import AssertionRules, assertion_request, unsigned_assertion
from broker.sasl.client.oauth_settings import (
    ASSERTION,
    ASSERTION_RETRIEVER,
    HANDLER_KEY,
    HANDLERS,
    OAUTH_KEYS,
    URL_KEY,
    GivenSetting,
    OAuthSettings,
    Retrieval,
    parse_oauth_settings,
)
from broker.sasl.client.oauthbearer import OAuthToken
from broker.sasl.client.token_endpoint import (
    ClientCredentials,
    TokenEndpoint,
    TokenRetrievalFailed,
    parse_endpoint,
    parse_token_response,
    retry_delays,
    token_request,
)
from broker.sasl.client.token_refresh import FAILED_REFRESH_DELAY_MS, RefreshSchedule, refresh_time_ms
from broker.sasl.mechanism import AuthenticationFailed

SECRET = "sesame-9"
URL = "https://idp.example/token"
GIVEN = {HANDLER_KEY: HANDLERS[0], URL_KEY: URL}
OPTIONS = {"clientId": "node", "clientSecret": SECRET}
MINUTE_MS = 60_000


def parsed(given: dict[str, str], options: dict[str, str] | None = None) -> OAuthSettings:
    def find(name: str) -> GivenSetting | None:
        return GivenSetting(f"prefix.{name}", given[name]) if name in given else None

    return parse_oauth_settings(OPTIONS if options is None else options, "jaas", find)


def retrieval(given: dict[str, str], options: dict[str, str] | None = None) -> Retrieval:
    source = parsed(GIVEN | given, options).source
    assert isinstance(source, Retrieval)
    return source


def test_defaults_are_kafkas() -> None:
    source = retrieval({})
    assert source.endpoint == TokenEndpoint("https", "idp.example", 443, "/token")
    assert source.credentials == ClientCredentials("node", SECRET)
    assert (source.backoff_ms, source.backoff_max_ms) == (100, 10_000)
    assert (source.subject_claim, source.scope_claim, source.url_encode) == ("sub", "scope", False)
    assert parsed(GIVEN).schedule == RefreshSchedule(0.8, 0.05, 60, 300)


def test_every_key_is_read_and_known_to_brokers() -> None:
    asked: set[str] = set()
    for given in (GIVEN, GIVEN | BY_ASSERTION):

        def find(name: str, given: dict[str, str] = given) -> GivenSetting | None:
            asked.add(name)
            return GivenSetting(name, given[name]) if name in given else None

        parse_oauth_settings(OPTIONS, "jaas", find)
    assert asked == set(OAUTH_KEYS)
    assert asked - BROKER_KEYS.keys() == {"sasl.oauthbearer.header.urlencode"}


def test_keys_take_precedence_over_options() -> None:
    given = {
        "sasl.oauthbearer.client.credentials.client.id": "other",
        "sasl.oauthbearer.client.credentials.client.secret": "another",
        "sasl.oauthbearer.scope": "kafka",
    }
    found = retrieval(given, OPTIONS | {"scope": "unused"}).credentials
    assert found == ClientCredentials("other", "another", "kafka")
    assert retrieval({}, OPTIONS | {"scope": "from options"}).credentials == ClientCredentials(
        "node", SECRET, "from options"
    )


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("sasl.oauthbearer.header.urlencode", "true", "url_encode", True),
        ("sasl.login.connect.timeout.ms", "5", "connect_timeout_ms", 5),
        ("sasl.login.read.timeout.ms", "6", "read_timeout_ms", 6),
        ("sasl.login.retry.backoff.ms", "7", "backoff_ms", 7),
        ("sasl.login.retry.backoff.max.ms", "8", "backoff_max_ms", 8),
        ("sasl.oauthbearer.sub.claim.name", "uid", "subject_claim", "uid"),
        ("sasl.oauthbearer.scope.claim.name", "scp", "scope_claim", "scp"),
    ],
)
def test_setting_is_read(key: str, value: str, attribute: str, expected: object) -> None:
    assert getattr(retrieval({key: value}), attribute) == expected


def test_schedule_is_read() -> None:
    given = {
        "sasl.login.refresh.window.factor": "0.6",
        "sasl.login.refresh.window.jitter": "0.1",
        "sasl.login.refresh.min.period.seconds": "1",
        "sasl.login.refresh.buffer.seconds": "2",
    }
    assert parsed(GIVEN | given).schedule == RefreshSchedule(0.6, 0.1, 1, 2)


def test_extensions_and_tls_options_come_from_the_entry() -> None:
    options = OPTIONS | {"extension_trace": "x", "ssl.truststore.location": "/ca.pem"}
    assert parsed(GIVEN, options).extensions == (("trace", "x"),)
    assert retrieval({}, options).tls == (("ssl.truststore.location", "/ca.pem"),)


def test_token_of_a_file_needs_no_credentials() -> None:
    source = retrieval({URL_KEY: "file:///run/token%20a.jwt"}, {})
    assert (source.endpoint.scheme, source.endpoint.path, source.credentials) == ("file", "/run/token a.jwt", None)


BY_ASSERTION = {
    "sasl.oauthbearer.jwt.retriever.class": ASSERTION_RETRIEVER,
    f"{ASSERTION}private.key.file": "/key.pem",
}


def test_assertion_replaces_the_client_secret() -> None:
    assert retrieval(BY_ASSERTION, {}).credentials == AssertionRules(None, "/key.pem")
    given = {
        f"{ASSERTION}algorithm": "es256",
        f"{ASSERTION}claim.aud": "idp",
        f"{ASSERTION}claim.exp.seconds": "20",
        f"{ASSERTION}claim.iss": "ottla",
        f"{ASSERTION}claim.jti.include": "true",
        f"{ASSERTION}claim.nbf.seconds": "10",
        f"{ASSERTION}claim.sub": "node",
        f"{ASSERTION}file": "/ready.jwt",
        f"{ASSERTION}private.key.passphrase": SECRET,
        f"{ASSERTION}template.file": "/template.json",
        "sasl.oauthbearer.scope": "kafka",
    }
    claims = (("aud", "idp"), ("iss", "ottla"), ("sub", "node"))
    assert retrieval(BY_ASSERTION | given, {}).credentials == AssertionRules(
        "/ready.jwt", "/key.pem", SECRET, "ES256", claims, "/template.json", 20, 10, True, "kafka"
    )
    assert SECRET not in repr(retrieval(BY_ASSERTION | given, {}))


def test_assertion_has_claims_of_settings_template_and_clock() -> None:
    rules = AssertionRules(None, "/key.pem", claims=(("aud", "idp"), ("sub", "node")), has_id=True)
    template = b'{"header": {"kid": "7", "alg": "none"}, "payload": {"sub": "other", "x": 1, "exp": 0}}'
    made = unsigned_assertion(rules, template, 1_000, "unique")
    assert made.header == {"kid": "7", "alg": "RS256", "typ": "JWT"}
    times = {"iat": 1_000, "exp": 1_300, "nbf": 940}
    assert made.payload == {"aud": "idp", "sub": "other", "x": 1, "jti": "unique", **times}
    assert unsigned_assertion(AssertionRules(None, "/k"), None, 1_000, "unique").payload == times
    for wrong in (b"", b"[]", b'{"header": 1}', b'{"payload": []}'):
        with pytest.raises(AuthenticationFailed, match="is not a JSON object with header and payload"):
            unsigned_assertion(rules, wrong, 0, "unique")
    headers, body = assertion_request("a.b.c", "one two")
    grant = b"grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer"
    assert body == grant + b"&assertion=a.b.c&scope=one+two"
    assert "Authorization" not in headers


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ({HANDLER_KEY: "com.example.Handler"}, {}, f"prefix.{HANDLER_KEY} is not implemented"),
        ({URL_KEY: ""}, OPTIONS, f"{URL_KEY} is not set"),
        ({URL_KEY: "ftp://host/token"}, OPTIONS, f"prefix.{URL_KEY} is not an https, http or file URL"),
        ({URL_KEY: f"https://a:{SECRET}@host/"}, OPTIONS, "holds credentials"),
        ({URL_KEY: "https://host:port/"}, OPTIONS, "is not a URL"),
        ({URL_KEY: "file:relative"}, OPTIONS, "has no absolute path"),
        ({}, {"clientId": "a"}, "jaas has no clientSecret"),
        ({}, {"clientSecret": SECRET}, "jaas has no clientId"),
        ({}, OPTIONS | {"extension_auth": SECRET}, "the SASL extension auth is reserved"),
        ({"sasl.login.retry.backoff.ms": "-1"}, OPTIONS, "must be a whole number from 0"),
        ({"sasl.login.refresh.window.factor": "0.4"}, OPTIONS, "must be a number from 0.5 to 1.0"),
        ({"sasl.oauthbearer.header.urlencode": "yes"}, OPTIONS, "must be true or false"),
        ({"sasl.oauthbearer.jwt.retriever.class": "com.example.R"}, OPTIONS, "is not implemented"),
        (
            {"sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"},
            OPTIONS,
            "does not suit FileJwtRetriever",
        ),
        ({"sasl.oauthbearer.jwt.retriever.class": ASSERTION_RETRIEVER}, {}, "private.key.file is not set"),
        (BY_ASSERTION | {f"{ASSERTION}algorithm": "HS256"}, {}, "must be one of RS256, ES256"),
        (BY_ASSERTION | {f"{ASSERTION}claim.exp.seconds": "86401"}, {}, "must be a whole number from 0 to 86400"),
    ],
)
def test_unusable_settings_are_refused(given: dict[str, str], options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(GIVEN | given, options)
    assert sentence in caught.value.sentence
    assert SECRET not in caught.value.sentence


def test_secrets_are_not_shown() -> None:
    assert SECRET not in repr(parsed(GIVEN, OPTIONS | {"ssl.key.password": SECRET}))
    assert str(parse_endpoint("https://host/token?code=secret")) == "https://host:443/token"


def test_request_has_the_credentials_in_its_header() -> None:
    headers, body = token_request(ClientCredentials("a b", "c:d", "one two"))
    assert headers["Authorization"] == "Basic YSBiOmM6ZA=="
    assert body == b"grant_type=client_credentials&scope=one+two"
    encoded, body = token_request(ClientCredentials("a b", "c:d"), url_encode=True)
    assert encoded["Authorization"] == "Basic YStiOmMlM0Fk"
    assert body == b"grant_type=client_credentials"


def test_response_is_parsed() -> None:
    assert parse_token_response(200, b'{"access_token": " a.b.c "}') == "a.b.c"
    with pytest.raises(AuthenticationFailed, match=r"^answered with status 401 and invalid_client$") as final:
        parse_token_response(401, b'{"error": "invalid_client", "error_description": "sesame-9"}')
    assert not isinstance(final.value, TokenRetrievalFailed)
    with pytest.raises(TokenRetrievalFailed, match=r"^answered with status 503$"):
        parse_token_response(503, b"<html>")
    for body in (b"", b"[]", b"{}", b'{"access_token": 1}', b"[" * 100_000):
        with pytest.raises(AuthenticationFailed, match="without access_token"):
            parse_token_response(200, body)


def test_waits_double_until_the_time_is_over() -> None:
    now = [0.0]
    next_delay = retry_delays(100, 1_000, lambda: now[0])
    waits = []
    while (delay := next_delay()) is not None:
        waits.append(delay)
        now[0] += delay
    assert waits == [100, 200, 400, 300]


@pytest.mark.parametrize(
    ("life_minutes", "expected_minutes"),
    [
        (60, 48.0),  # 80 % of the life
        (20, 15.0),  # not within the last five minutes
        (5, 4.0),  # both buffers do not fit
    ],
)
def test_token_is_refreshed_in_time(life_minutes: int, expected_minutes: float) -> None:
    token = OAuthToken("a.b.c", "node", life_minutes * MINUTE_MS, 0)
    assert refresh_time_ms(RefreshSchedule(), token, 0, 0.0) == expected_minutes * MINUTE_MS
    assert refresh_time_ms(RefreshSchedule(), token, 0, 1.0) >= expected_minutes * MINUTE_MS


def test_refresh_is_neither_at_once_nor_after_the_end() -> None:
    old = OAuthToken("a.b.c", "node", 60 * MINUTE_MS, 0)
    assert refresh_time_ms(RefreshSchedule(), old, 50 * MINUTE_MS, 0.0) == 51 * MINUTE_MS
    assert refresh_time_ms(RefreshSchedule(), old, 61 * MINUTE_MS, 0.0) == 61 * MINUTE_MS + FAILED_REFRESH_DELAY_MS
