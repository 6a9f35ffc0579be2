/* SPDX-License-Identifier: GPL-2.0-or-later */
/* External programs that a command runs, without a shell and without input. */
#ifndef HYBRID_CHILD_H
#define HYBRID_CHILD_H

#define HYBRID_CHILD_ARGS	16

/*
 * Runs @argv, which ends with NULL, and waits for it.  Its stdout goes to *out, which is allocated,
 * or, if @out is NULL, to our stdout.  Its stderr is ours.  Returns its exit status; 127 if it is
 * not installed; -1 if it could not be run, or a signal ended it: *out is NULL then.
 */
int hybrid_child(const char * const argv[], char **out);

#endif
