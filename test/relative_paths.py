# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit tests whose %s, %S and %t are relative, so that they are one word, and no pass's option ends in them, wherever the clone lies."""

import os

import lit.formats
import lit.TestRunner


class RelativePaths(lit.formats.ShTest):
    """As lit's own format but for the paths. A class of lit.cfg.py itself could not be sent to lit's processes."""

    def execute(self, test, lit_config):
        """Runs the test in the folder of its outputs, as lit does."""
        folder = os.path.dirname(test.getExecPath())
        _, base = lit.TestRunner.getTempPaths(test)
        source = test.getSourcePath()
        paths = {"%s": source, "%S": os.path.dirname(source), "%t": f"{base}.tmp"}
        # Of "%%s" the first is what the second means.
        relative = [(rf"(?<!%){name}\b", os.path.relpath(path, folder)) for name, path in paths.items()]
        return lit.TestRunner.executeShTest(test, lit_config, self.execute_external, relative)
