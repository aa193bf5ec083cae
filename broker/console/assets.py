"""The files of the page: loaded once, answered with an entity tag."""

import hashlib
from importlib import resources
from typing import Final

from broker.http.messages import HttpRequest, HttpResponse

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}

SECURITY_HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Assets:
    """The files by name. Reads the package's files when created."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for file in resources.files("broker.console").joinpath("assets").iterdir():
            kind = _TYPES.get(file.name.rpartition(".")[2])
            if kind is not None:
                content = file.read_bytes()
                self._files[file.name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    def answer(self, name: str, request: HttpRequest) -> HttpResponse:
        """Return a file, 304 if the browser has it, or 404."""
        found = self._files.get(name)
        if found is None:
            return HttpResponse(404, b"404 Not Found\n", headers=SECURITY_HEADERS)
        content, kind, tag = found
        headers = (*SECURITY_HEADERS, ("Cache-Control", "no-cache"), ("ETag", tag))
        if request.headers.get("if-none-match") == tag:
            return HttpResponse(304, b"", kind, headers)
        return HttpResponse(200, content, kind, headers)
