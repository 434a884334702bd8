import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer

from equifl.nvflare.__main__ import main
from equifl.nvflare.allow_list import allow

OURS = {"path": "equifl.nvflare.controller.FairFedAvg"}
FOREIGN = {"path": "equifl.cli.main.Something"}


def kit(root: Path, resources: dict[str, Any] | None = None) -> Path:
    (root / "startup").mkdir(parents=True)
    (root / "local").mkdir()
    (root / "local" / "resources.json.default").write_text(json.dumps(resources or {"format_version": 2}))
    return root


def authorise(root: Path, component: dict[str, str]) -> None:
    """As a server does for a job that brings no code."""
    own, default = root / "local" / "resources.json", root / "local" / "resources.json.default"
    workspace = SimpleNamespace(get_resources_file_path=lambda: str(own if own.exists() else default))
    ComponentPathAuthorizer().authorize_component_config(component, workspace=workspace)


def test_a_server_loads_our_classes_once_they_are_allowed_and_no_others(tmp_path: Path) -> None:
    server = kit(tmp_path / "server")
    with pytest.raises(UnsafeComponentError, match=r"FairFedAvg' .* is not in allow_list"):
        authorise(server, OURS)
    allow(server)
    authorise(server, OURS)
    authorise(server, {"path": "nvflare.app_common.workflows.fedavg.FedAvg"})
    with pytest.raises(UnsafeComponentError):
        authorise(server, FOREIGN)


def test_other_settings_stay_and_the_list_grows_once(tmp_path: Path) -> None:
    server = kit(tmp_path, {"format_version": 2, "snapshot": {"x": 1}, "class_allow_list": ["a.b"]})
    written = allow(server)
    assert allow(server) == written == server / "local" / "resources.json"
    resources = json.loads(written.read_text())
    assert resources["class_allow_list"] == ["a.b", "equifl.nvflare."]
    assert resources["snapshot"] == {"x": 1}


def test_a_list_that_allows_everything_is_left_alone(tmp_path: Path) -> None:
    assert allow(kit(tmp_path, {"class_allow_list": ["*"]})).name == "resources.json.default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1', r"resources\.json: is no JSON \(Expecting"),
        ("[]", r"resources\.json: \[\] is not allowed; allowed: a table"),
        (
            '{"class_allow_list": "a.b"}',
            r"resources\.json: class_allow_list: 'a\.b' is not allowed; allowed: a list of",
        ),
        ('{"class_allow_list": [1]}', r"resources\.json: class_allow_list: \[1\] is not allowed; allowed: a list of"),
    ],
)
def test_a_broken_file_is_named_and_left_as_it_is(text: str, message: str, tmp_path: Path) -> None:
    file = kit(tmp_path) / "local" / "resources.json"
    file.write_text(text)
    with pytest.raises(SystemExit, match=message):
        main(["allow", str(tmp_path)])
    assert file.read_text() == text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["allow", str(kit(tmp_path / "server"))])
    assert "resources.json: allows equifl.nvflare.*; restart the server" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="is no startup kit of NVFlare"):
        main(["allow", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"usage: python -m equifl\.nvflare allow KIT"):
        main([])
