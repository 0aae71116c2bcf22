/* Where the payloads of one rank lie, call after call: Payloads::place in src/shm/board/board.h.
 *
 * One rank places payloads of any size. A peer may still read the payload of the call before, and none before that:
 * the new one must not overlap it. No other rank is needed: when a peer reads is the subject of meeting.pml.
 *
 * The unit is 4 KiB, a little more than kNearBytes: a payload of up to kNearBytes lies in front of all others, in one of
 * two places by turns. It is left out here, for it touches neither the others nor the one before it.
 */
#define FIRST 1   /* Payloads::kFirst */
#define INLINE 16 /* kInlineBytes: the largest packed input */
#define NOTE 8    /* kNoteBytes: the longest note, which lies behind it */
#ifdef OPEN_PAYLOADS
#define ALL (4 * INLINE) /* payload_bytes, of two ranks and of five or more */
#else
#define ALL (5 * INLINE)
#endif

byte next = FIRST;
byte begin, size;
byte begin_before, size_before; /* of the call before */

active proctype rank() {
end_calls:
  do
  :: atomic {
       begin_before = begin;
       size_before = size;
       select(size : 1 .. INLINE + NOTE);
       if
       :: next + size > ALL -> next = FIRST
       :: else -> skip
       fi;
       begin = next;
       next = next + size;
       assert(begin + size <= ALL);
       assert(begin + size <= begin_before || begin_before + size_before <= begin)
     }
  od
}
