"""Topics alone need no Spark."""

from __future__ import annotations

import subprocess
import sys


def test_the_topics_import_neither_spark_nor_a_driver_that_is_not_used():
    heavy = "{'pyspark', 'deltalake', 'pyarrow', 'numpy', 'psycopg', 'click', 'rich'}"
    code = f"import sys; from ticklake import Database, BatchInfo; sys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
