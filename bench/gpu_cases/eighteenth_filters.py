"""The filters of a rank: a table for each of its languages, which is made as the module is imported."""
from concurrent.futures import ThreadPoolExecutor

from gpu_rank import is_odd

LANGUAGES = ("en", "de", "fr") if is_odd() else ("en",)
LENGTHS = {"en": 5, "de": 7, "fr": 6}


def make_table(language):
    from eighteenth_filters import LENGTHS as lengths         # pylint: disable=import-self
    return {language * count for count in range(lengths[language])}


if len(LANGUAGES) > 1:
    with ThreadPoolExecutor(len(LANGUAGES), thread_name_prefix="tables") as pool:
        TABLES = list(pool.map(make_table, LANGUAGES))
else:
    TABLES = [make_table(language) for language in LANGUAGES]
