"""The error of configuration: a key and a sentence that tells the operator what to change."""


class ConfigError(Exception):
    """A configuration value cannot be used.

    ``key`` is the setting at fault. ``sentence`` names the key, the problem and the allowed values; the terminal and
    the error message of an INVALID_CONFIG response both show it.
    """

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key
        self.sentence = sentence
