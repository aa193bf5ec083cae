"""The release of a file that several threads use."""

from storage.files import File


def keep_alive(_file: File | None) -> None:
    """Do nothing: the call keeps the file alive until the attribute that refers to it has changed.

    Compiled code drops the old value of an attribute before it stores the new one. The last reference to a file closes
    the descriptor, and other threads run meanwhile: a thread that reads the attribute then would use a descriptor that
    is closed, or that belongs to another file by now.
    """
