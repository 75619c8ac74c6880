"""Text for XML files: GraphML and JUnit."""

import re

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow; names and the errors of vLLM may contain them."""


def xml_text(text: str) -> str:
    """The text with a replacement character for each character that XML does not allow."""
    return NOT_XML.sub("\ufffd", text)
