"""The class allow list of an NVFlare site: which classes a job may name that brings no code of its own.

`python -m equifl.nvflare allow KIT` calls `allow`.
"""

from __future__ import annotations

import json
from pathlib import Path

from nvflare.apis.fl_constant import WorkspaceConstants
from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
from nvflare.app_common.widgets.component_path_authorizer import ALLOW_ALL, CLASS_ALLOW_LIST

from equifl._numerics.checks import require
from equifl.experiment.atomic_write import replacing

OURS = "equifl.nvflare."  # a package, by its last dot


def allow(kit: Path | str) -> Path:
    """Add the classes of equifl.nvflare to the allow list of a site; returns the file that has the list.

    It writes `local/resources.json`, which NVFlare reads instead of `resources.json.default`; all other settings are
    those of the file that was in force. ValueError for a file that is not as NVFlare writes it.
    """
    local = Path(kit) / WorkspaceConstants.SITE_FOLDER_NAME
    target = local / WorkspaceConstants.RESOURCES_CONFIG
    source = target if target.exists() else local / WorkspaceConstants.DEFAULT_RESOURCES_CONFIG
    try:
        resources = json.loads(source.read_text()) if source.exists() else {"format_version": 2}
    except ValueError as error:
        raise ValueError(f"{source}: is no JSON ({error}); mend it, or take the one that NVFlare made") from None
    require(str(source), resources, isinstance(resources, dict), "a table, as NVFlare writes it")
    allowed = resources.get(CLASS_ALLOW_LIST, list(DEFAULT_CLASS_ALLOW_LIST))
    names = isinstance(allowed, list) and all(isinstance(name, str) for name in allowed)
    require(f"{source}: {CLASS_ALLOW_LIST}", allowed, names, 'a list of names, such as ["package."]')
    if OURS not in allowed and ALLOW_ALL not in allowed:
        local.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(json.dumps(resources | {CLASS_ALLOW_LIST: [*allowed, OURS]}, indent=4).encode() + b"\n")
        return target
    return source
