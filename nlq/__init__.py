"""nlq: is this language-model architecture really better?"""

__version__ = "0.1.0"
