/* Where the payloads of one rank lie, call after call, in one of two areas: Payloads::place in src/shm/board/board.h.
 *
 * One rank places payloads of any size: its input with a note, and in a call of two legs (legs.h) its share as well. When
 * it places an input, a peer may still read what the call before placed, and nothing older; when it places a share, all
 * have met, and only this call's input may be read. Nothing may overlap what may be read. No other rank is needed: when
 * a peer reads is the subject of meeting.pml.
 *
 * Each area is such a row by itself: what lies in the other one only leaves more room. Its length is six times its largest
 * payload, as here. In the front area the unit is 16 KiB, more than the two places of kNearBytes: a payload of up to kNearBytes lies in front of all others, in one of
 * two places by turns. It is left out here, for it touches neither the others nor the one before it.
 */
#define FIRST 1  /* Payloads::kFirst, rounded up */
#define INLINE 4 /* kInlineBytes: the largest packed input, and the largest share */
#define NOTE 2   /* kNoteBytes: the longest note, which lies behind the input */
#ifdef LEGS
#define NEEDED 6 /* payload_bytes, of three ranks and more */
#else
#define NEEDED 5 /* of two */
#endif
#ifdef PLANT_LESS_ROOM
#define ALL ((NEEDED - 1) * INLINE)
#else
#define ALL (NEEDED * INLINE)
#endif

byte next = FIRST;
byte begin, size;               /* of the input */
byte begin_before, size_before; /* of the call before */
byte share, share_size;         /* 0: the call has one leg */
byte share_before, share_size_before;

#define APART(a, bytes_a, b, bytes_b) (bytes_b == 0 || a + bytes_a <= b || b + bytes_b <= a)

inline place(at, bytes) {
  if
  :: next + bytes > ALL -> next = FIRST
  :: else -> skip
  fi;
  at = next;
  next = next + bytes;
  assert(at + bytes <= ALL)
}

active proctype rank() {
end_calls:
  do
  :: atomic {
       begin_before = begin;
       size_before = size;
       share_before = share;
       share_size_before = share_size;
       share = 0;
       share_size = 0;
       select(size : 1 .. INLINE + NOTE);
       place(begin, size);
       assert(APART(begin, size, begin_before, size_before));
       assert(APART(begin, size, share_before, share_size_before));
#ifdef LEGS
       if
       :: select(share_size : 1 .. INLINE);
          place(share, share_size);
          assert(APART(share, share_size, begin, size))
       :: skip
       fi
#endif
     }
  od
}
