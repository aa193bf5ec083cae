"""Handlers by method and path."""

import json

from broker.http.messages import HttpRequest, HttpResponse, Routes, find_handler, json_response


def _page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200)


def _part(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200)


def _act(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200)


ROUTES: Routes = {"/": _page, "/console/*": _part, "POST /console/*": _act}


def test_exact_path_comes_before_its_first_segment() -> None:
    assert find_handler(ROUTES, "GET", "/") is _page
    assert find_handler(ROUTES, "HEAD", "/console/app.js") is _part
    assert find_handler(ROUTES, "GET", "/console/api/topics") is _part
    assert find_handler(ROUTES, "GET", "/consoles") is None
    assert find_handler(ROUTES, "GET", "//console/x") is None


def test_post_has_routes_of_its_own() -> None:
    assert find_handler(ROUTES, "POST", "/console/api/actions/x") is _act
    assert find_handler(ROUTES, "POST", "/") is None


def test_json_response_is_a_line() -> None:
    response = json_response(503, {"status": "not ready"})
    assert (response.status, response.content_type) == (503, "application/json")
    assert json.loads(response.body) == {"status": "not ready"}
