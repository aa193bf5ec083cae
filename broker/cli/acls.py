"""`ottla acls`: Kafka's kafka-acls."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import click

from broker.cli.shared import acls as lists
from broker.cli.shared.acls import CLUSTER_RESOURCE, AclRule, Acls, ResourceFilter
from broker.cli.shared.advice import with_advice
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.target import AdminClient, Target, target_options
from protocol.errors import KafkaError

_EVERY_HOST: Final = "*"
_RESOURCES: Final = {
    "topic": lists.TOPIC,
    "group": lists.GROUP,
    "transactional_id": lists.TRANSACTIONAL_ID,
    "delegation_token": lists.DELEGATION_TOKEN,
    "user_principal": lists.USER,
}

F = TypeVar("F", bound=Callable[..., object])
Options = Mapping[str, Any]


def _names(option: str, help_text: str) -> Callable[[F], F]:
    return click.option(option, multiple=True, metavar="NAME", help=help_text)


def _principals(option: str, help_text: str) -> Callable[[F], F]:
    return click.option(option, multiple=True, metavar="TYPE:NAME", help=help_text)


@click.command("acls", short_help="List, add or remove access control lists.")
@target_options
@click.option("--add", is_flag=True, help="Add ACLs.")
@click.option("--remove", is_flag=True, help="Remove ACLs.")
@click.option("--list", "list_", is_flag=True, help="List ACLs, of all resources or of the given ones.")
@_names("--topic", "A topic; * stands for all.")
@_names("--group", "A group; * stands for all.")
@click.option("--cluster", is_flag=True, help="The cluster.")
@_names("--transactional-id", "A transactional id; * stands for all.")
@_names("--delegation-token", "A delegation token; * stands for all.")
@_names("--user-principal", "A user, for operations on the user's delegation tokens.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice(list(lists.PATTERN_TYPES), case_sensitive=False),
    default="LITERAL",
    show_default=True,
    help="How names match. ANY and MATCH are for --list and --remove: MATCH selects all ACLs that affect a resource.",
)
@_principals("--allow-principal", "A principal to allow; User:* stands for all users.")
@_principals("--deny-principal", "A principal to deny. DENY takes precedence over ALLOW.")
@click.option("--allow-host", multiple=True, metavar="IP", help="A host of the allowed principals. [default: *]")
@click.option("--deny-host", multiple=True, metavar="IP", help="A host of the denied principals. [default: *]")
@click.option(
    "--operation", multiple=True, metavar="NAME", help=f"{', '.join(lists.OPERATION_NAMES)}. [default: {'All'}]"
)
@click.option("--producer", is_flag=True, help="ACLs of producers: Write, Describe and Create on --topic.")
@click.option("--consumer", is_flag=True, help="ACLs of consumers: Read and Describe on --topic, Read on --group.")
@click.option("--idempotent", is_flag=True, help="IdempotentWrite on the cluster, with --producer.")
@_principals("--principal", "List only ACLs of this principal.")
@click.option("--force", is_flag=True, help="Ask no questions.")
@json_option
def acls(
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List, add or remove access control lists (kafka-acls)."""
    action = one_action({"list": options["list_"], "add": options["add"], "remove": options["remove"]})
    _check(options)
    target = Target.of(bootstrap_server, bootstrap_controller, command_config)
    wanted: Acls = {} if action == "list" else _wanted(options)
    if action == "add":
        _check_addition(options, wanted)
    with target.open() as admin:
        try:
            if action == "list":
                _list(admin, options, as_json)
            elif action == "add":
                _add(admin, wanted)
            else:
                _remove(admin, wanted, ask=not options["force"])
        except KafkaError as error:
            raise CommandFailed(with_advice(f"Error while executing ACL command: {error.message}", error)) from error


# Options.


def _check(options: Options) -> None:
    """Raise UsageError for options that exclude or require each other."""
    shaping = ("allow_host", "allow_principal", "deny_host", "deny_principal")
    inferred = ("operation", "deny_principal", "deny_host")
    for used, excluded in (
        ("list_", ("producer", "consumer", *shaping)),
        ("producer", inferred),
        ("consumer", inferred),
    ):
        for each in excluded:
            if options[used] and options[each]:
                raise click.UsageError(f'Option "[{_flag(used)}]" can\'t be used with option "[{_flag(each)}]"')
    is_other_than_producer = options["consumer"] and not options["producer"]
    for sentence, is_so in {
        "The --principal option is only available if --list is set": options["principal"] and not options["list_"],
        "With --producer you must specify a --topic": options["producer"] and not options["topic"],
        "The --idempotent option is only available if --producer is set": options["idempotent"]
        and not options["producer"],
        "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should "
        "be specified.": (options["consumer"] and not (options["topic"] and options["group"]))
        or (is_other_than_producer and (options["cluster"] or options["transactional_id"])),
    }.items():
        if is_so:
            raise click.UsageError(sentence)


def _flag(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _resources(options: Options) -> list[ResourceFilter]:
    """Return the resources that the options name."""
    pattern_type = lists.PATTERN_TYPES[options["resource_pattern_type"].upper()]
    found = [
        ResourceFilter(number, name.strip(), pattern_type)
        for option, number in _RESOURCES.items()
        for name in options[option]
    ]
    if pattern_type == lists.LITERAL and (options["cluster"] or options["idempotent"]):
        found.append(CLUSTER_RESOURCE)
    return list(dict.fromkeys(found))


def _wanted(options: Options) -> Acls:
    """Return the ACLs that the options describe, by resource. Raises UsageError."""
    resources = _resources(options)
    if not resources:
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    found: Acls = {}

    def add(chosen: Iterable[ResourceFilter], *operations: int) -> None:
        for each in chosen:
            found[each] = list(dict.fromkeys((*found.get(each, ()), *_rules(options, operations))))

    def of_type(resource_type: int) -> list[ResourceFilter]:
        return [each for each in resources if each.resource_type == resource_type]

    if options["producer"]:
        add(of_type(lists.TOPIC), lists.WRITE, lists.DESCRIBE, lists.CREATE)
        add(of_type(lists.TRANSACTIONAL_ID), lists.WRITE, lists.DESCRIBE)
        add([CLUSTER_RESOURCE] if options["idempotent"] else [], lists.IDEMPOTENT_WRITE)
    if options["consumer"]:
        add(of_type(lists.TOPIC), lists.READ, lists.DESCRIBE)
        add(of_type(lists.GROUP), lists.READ)
    if not options["producer"] and not options["consumer"]:
        add(resources, *(map(lists.operation_number, options["operation"]) if options["operation"] else [lists.ALL]))
    _check_operations(found)
    return found


def _rules(options: Options, operations: Iterable[int]) -> list[AclRule]:
    """Return a rule for each operation, principal and host."""
    return [
        AclRule(_principal(principal), host.strip(), operation, permission)
        for side, permission in (("allow", lists.ALLOW), ("deny", lists.DENY))
        for principal in options[f"{side}_principal"]
        for operation in operations
        for host in options[f"{side}_host"] or (_EVERY_HOST,)
    ]


def _principal(text: str) -> str:
    if ":" not in text:
        raise click.UsageError(f"expected a string in format principalType:principalName but got {text.strip()}")
    return text.strip()


def _check_operations(wanted: Acls) -> None:
    for resource, rules in wanted.items():
        supported = lists.supported_operations(resource.resource_type)
        if any(rule.operation not in supported for rule in rules):
            names = ", ".join(map(lists.written_name, supported))
            raise click.UsageError(f"ResourceType {resource.type_name} only supports operations {names}")


def _check_addition(options: Options, wanted: Acls) -> None:
    pattern_type = options["resource_pattern_type"].upper()
    if lists.PATTERN_TYPES[pattern_type] not in lists.SPECIFIC_PATTERNS:
        raise click.UsageError(f"A '--resource-pattern-type' value of '{pattern_type}' is not valid when adding acls.")
    if not all(wanted.values()):
        raise click.UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")


# Actions.


def _add(admin: AdminClient, wanted: Acls) -> None:
    for resource, rules in wanted.items():
        present = lists.describe_acls(admin, resource).get(resource, [])
        for rule in rules:
            if rule in present:
                click.echo(f"Acl (pattern={resource}, entry={rule}) already exists.")
        missing = [rule for rule in rules if rule not in present]
        if missing:
            click.echo(f"Adding ACLs for resource `{resource}`: \n {_lines(missing)}\n")
            lists.create_acls(admin, resource, missing)


def _remove(admin: AdminClient, wanted: Acls, *, ask: bool) -> None:
    for resource, rules in wanted.items():
        question = (
            f"Are you sure you want to remove ACLs: \n {_lines(rules)}\n from resource filter `{resource}`? (y/n)"
            if rules
            else f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)"
        )
        if not ask or _is_confirmed(question):
            lists.delete_acls(admin, resource, rules)


def _is_confirmed(question: str) -> bool:
    click.echo(question)
    return sys.stdin.readline().strip().lower() == "y"


def _list(admin: AdminClient, options: Options, as_json: bool) -> None:
    found: Acls = {}
    for resource in _resources(options) or [ResourceFilter()]:
        found |= lists.describe_acls(admin, resource)
    principals = list(dict.fromkeys(_principal(each) for each in options["principal"]))
    if as_json:
        chosen = found if not principals else {key: _of(rules, *principals) for key, rules in found.items()}
        print_json([_document(resource, rules) for resource, rules in chosen.items() if rules])
        return
    if not principals:
        _print(found)
    for principal in principals:
        click.echo(f"ACLs for principal `{principal}`")
        _print({resource: rules for resource, every in found.items() if (rules := _of(every, principal))})


def _of(rules: Iterable[AclRule], *principals: str) -> list[AclRule]:
    return [rule for rule in rules if rule.principal in principals]


def _print(found: Acls) -> None:
    for resource, rules in found.items():
        click.echo(f"Current ACLs for resource `{resource}`:\n{_lines(rules)}\n")


def _lines(rules: Iterable[AclRule]) -> str:
    return "\n".join(f"\t{rule}" for rule in rules)


def _document(resource: ResourceFilter, rules: Iterable[AclRule]) -> dict[str, object]:
    pattern_type = next(name for name, number in lists.PATTERN_TYPES.items() if number == resource.pattern_type)
    return {
        "resourceType": resource.type_name,
        "name": resource.name,
        "patternType": pattern_type,
        "acls": [rule.document() for rule in rules],
    }
