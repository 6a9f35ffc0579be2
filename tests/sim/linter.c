// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim.h"
struct linter *linter_new(struct world *w) { return NULL; }
void linter_free(struct linter *l) {}
void linter_boot(struct linter *l) {}
void linter_crash(struct linter *l) {}
void linter_submit(struct linter *l, struct action *a, struct dreq *r) {}
void linter_complete(struct linter *l, struct action *a, struct dreq *r) {}
void linter_lba_volume(struct linter *l, struct volume *vol) {}
