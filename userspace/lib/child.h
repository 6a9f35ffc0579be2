/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Programs of others that a command runs: without a shell, and without an input. */
#ifndef HYBRID_CHILD_H
#define HYBRID_CHILD_H

#define HYBRID_CHILD_ARGS	16

/*
 * Run @argv, which ends with NULL, and wait for it.  Its stdout becomes *out, allocated, unless @out is
 * NULL: then it has ours.  Its stderr is ours.  Returns its exit status; 127 if it is not
 * installed; -1 if it could not be run, or a signal ended it: then *out is NULL.
 */
int hybrid_child(const char * const argv[], char **out);

#endif
