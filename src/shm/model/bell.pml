/* A rank that changes its board and looks for sleepers, and a peer that marks itself and looks at the board:
 * Waiting::ring, ring_in_passing and Patience::fall_asleep, sleep, wake_up in src/shm/board/waiting.cpp.
 *
 * Here nobody wakes by himself, as a sleeper in the code does after 50 ms: a bell that is missed is missed for ever,
 * and the checker finds a sleeper that is never woken.
 *
 * This model alone has store buffers, so it sees what is wrong where a change of the bell or of the mark is not
 * sequentially consistent. A store waits in its rank's buffer and becomes visible later, in order; a load looks at memory.
 * A sequentially consistent change waits until the buffer is empty (drained). The system's calls are not taken for such,
 * though they are on the processors that we know.
 */
#define CHANGES 3 /* the last is followed by ring, the others by ring_in_passing */

byte change, bell; /* of the rank's board, in memory: a count, BoardHead::bell */
bit asleep;        /* of the peer's board: BoardHead::asleep */
bool sleeps;       /* the system has put the peer to sleep on the bell */

/* Stores on their way: the rank's, of which the change comes first (the bell's is a release), and the peer's. */
bool change_waits, bell_waits, mark_waits;
bit mark;

inline drained_by_rank() { !change_waits && !bell_waits }
inline drained_by_peer() { !mark_waits }

inline look_for_sleepers() {
  if
  :: asleep -> sleeps = false /* futex_wake_all */
  :: else -> skip
  fi
}

inline ring() {
  atomic { !bell_waits -> bell_waits = true };
#ifndef PLANT_RINGS_WITHOUT_ORDER
  drained_by_rank();
#endif
  look_for_sleepers()
}

active proctype rank() {
  byte made;
  do
  :: made < CHANGES ->
#ifdef PLANT_LOOKS_FIRST
     if
     :: made == CHANGES - 1 -> look_for_sleepers()
     :: else -> skip
     fi;
#endif
     atomic { !change_waits && !bell_waits -> change_waits = true; made++ };
#ifdef PLANT_LOOKS_FIRST
     atomic { !bell_waits -> bell_waits = true }
#else
     if
#ifndef PLANT_ALWAYS_IN_PASSING
     :: made == CHANGES -> ring()
#endif
     :: else ->
        if
        :: asleep -> ring()
        :: else -> skip
        fi
     fi
#endif
  :: else -> break
  od
}

active proctype buffer_of_rank() {
end_empty:
  do
  :: atomic { change_waits -> change++; change_waits = false }
  :: atomic { !change_waits && bell_waits -> bell++; bell_waits = false }
  od
}

active proctype buffer_of_peer() {
end_empty:
  do
  :: atomic { mark_waits -> asleep = mark; mark_waits = false }
  od
}

active proctype peer() {
  byte wanted, seen;
  select(wanted : 1 .. CHANGES);
  do
  :: change >= wanted -> break
  :: else ->
     /* fall_asleep */
     atomic { !mark_waits -> mark = 1; mark_waits = true };
#ifndef PLANT_MARKS_WITHOUT_ORDER
     drained_by_peer();
#endif
#ifdef PLANT_READS_BELL_LAST
     if
     :: change >= wanted -> goto awake
     :: else -> skip
     fi;
     seen = bell;
#else
     seen = bell;
#ifndef PLANT_NO_LAST_LOOK
     if
     :: change >= wanted -> goto awake
     :: else -> skip
     fi;
#endif
#endif
     /* futex_wait: the system compares the bell and puts the peer to sleep in one step */
     atomic {
       if
       :: bell == seen -> sleeps = true
       :: else -> skip
       fi
     };
     !sleeps;
  awake:
     atomic { !mark_waits -> mark = 0; mark_waits = true }
  od
}
