/* SPDX-License-Identifier: GPL-2.0-only */
/* The intents on a disk: bytes only.  engine-intent.c writes them. */
#ifndef DM_HYBRID_INTENT_H
#define DM_HYBRID_INTENT_H

#include "journal.h"

/* Bytes of the largest data of a record. */
#define HYBRID_INTENT_DATA	(HYBRID_INTENT_SECTORS << 9)

/* The first sector of the volume behind the granules of a record. */
static inline u64 hybrid_intent_end(const struct hybrid_geometry *g,
				    const struct hybrid_intent_record *r)
{
	return (le64_to_cpu(r->oblock) << g->block_shift) +
	       ((u64)fls64(le64_to_cpu(r->granules)) << g->granule_shift);
}

typedef int (*hybrid_intent_fn)(void *context, const struct hybrid_intent_record *r, bool flushed);

/*
 * Replays the intents of @id's epoch from *tail on, which is the newest tail: calls apply() for
 * every record in order, @flushed if the intent was flushed with its data.  Sets *tail behind the
 * newest intent.  May sleep.  Returns 0, -ENOMEM, an error of read() or apply(), or an error that
 * *why describes, for damage; with any error of an intent, *tail is its number:
 *
 *	-EINVAL		an intent with a good checksum has invalid fields
 *	-ENODATA	an intent that was flushed is missing
 *	-ESTALE		an intent has another epoch: it followed a newer root
 */
int hybrid_intents_replay(const struct hybrid_geometry *g, const struct hybrid_ident *id,
			  u64 *tail, hybrid_read_fn read, hybrid_intent_fn apply, void *context,
			  const char **why);

/*
 * Reads the data of a record into @mem, of HYBRID_INTENT_DATA bytes.  May sleep.  Returns 1 if it
 * has the record's checksum, 0 if not, or an error of read().
 */
int hybrid_intent_read_data(const struct hybrid_geometry *g, const struct hybrid_ident *id,
			    const struct hybrid_intent_record *r, hybrid_read_fn read,
			    void *context, void *mem);

#endif
