"""The one error of configuration: a key and a sentence a person can act on."""


class ConfigError(Exception):
    """A configuration value cannot be used.

    ``key`` is the setting at fault; ``sentence`` names it, says what is wrong, and is fit for the operator's
    terminal as well as for the error message of an INVALID_CONFIG answer.
    """

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(sentence)
        self.key = key
        self.sentence = sentence
