"""Every sentence that an error of horovod.common says: see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import WrongSetting

no_text = WrongSetting.says("{setting}={value!r} is not UTF-8 text", "unset it or give a valid value")
