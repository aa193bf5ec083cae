"""Commands that query and administer a cluster, one file each; larger ones are in the folder above."""
