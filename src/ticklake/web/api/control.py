"""The API: services and resources of a node, and start, stop, pause, resume."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ticklake.node.node import Node
from ticklake.web.api import models, node_json
from ticklake.web.api.operations import Operation
from ticklake.web.responses import problem

STOP_SECONDS = 10.0
"""How long a response waits for a service to stop. The service continues to stop after that."""

ACTIONS = ("start", "stop", "pause", "resume")


def node_of(request: Request) -> Node:
    node: Node = request.app.state.node
    return node


def show_node(request: Request) -> Response:
    return JSONResponse(node_json.node_view(node_of(request)))


def list_services(request: Request) -> Response:
    return JSONResponse(node_json.services_view(node_of(request)))


def show_service(request: Request) -> Response:
    return JSONResponse(node_json.service_view(node_of(request), request.path_params["name"]))


def list_errors(request: Request) -> Response:
    return JSONResponse(node_json.errors_view(node_of(request), request.path_params["name"]))


def list_resources(request: Request) -> Response:
    return JSONResponse(node_json.resources_view(node_of(request)))


def change_service(request: Request) -> Response:
    node, name, action = node_of(request), request.path_params["name"], request.path_params["action"]
    service = node.service(name)
    if action not in ACTIONS:
        return problem(HTTPStatus.NOT_FOUND, f"Unknown action {action}; known: {', '.join(ACTIONS)}.")
    done = True
    if action == "start":
        node.supervisor.start(name)
    elif action == "stop":
        done = node.supervisor.stop(name, STOP_SECONDS)
    elif action == "pause":
        service.pause()
    else:
        service.resume()
    return JSONResponse(node_json.service_view(node, name), HTTPStatus.OK if done else HTTPStatus.ACCEPTED)


OPERATIONS = (
    Operation("GET", "/api/node", show_node, "The node itself", models.Node),
    Operation("GET", "/api/services", list_services, "All services, in start order", list[models.Service]),
    Operation("GET", "/api/services/{name}", show_service, "One service", models.Service, refusals=(404,)),
    Operation(
        "GET",
        "/api/services/{name}/errors",
        list_errors,
        "The last 100 errors of a service",
        list[models.Error],
        refusals=(404,),
    ),
    Operation(
        "POST",
        "/api/services/{name}/{action}",
        change_service,
        "Start, stop, pause or resume a service; 202 if it is still stopping",
        models.Service,
        statuses=(200, 202),
        refusals=(404, 409),
        choices={"action": ACTIONS},
    ),
    Operation(
        "GET", "/api/resources", list_resources, "All resources and the services that use them", list[models.Resource]
    ),
)
