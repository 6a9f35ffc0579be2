/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HYBRIDCTL_LOSS_H
#define HYBRIDCTL_LOSS_H

struct command_line;

/* lost --acknowledge: clears the record of lost data on the origin.  Returns 0 or an exit code. */
int acknowledge_loss(const struct command_line *cl);

#endif
