/* An all-reduce of two ranks whose slots travel there and back: src/shm/calls/two_rank_all_reduce.cpp.
 *
 * Nobody waits for an empty slot: the model shows that none is filled before its result was collected. CALLS all-reduces
 * follow one another, each of 1 to PIECES pieces. The meeting in front of each is one number per rank.
 */
#ifndef SLOTS
#define SLOTS 4 /* slots_of has at least as many */
#endif
#ifndef PIECES
#define PIECES 9
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define RANKS 2
#include "waiting.pml"

byte entered[2];
byte pieces;   /* of the call under way: the ranks have agreed on it */
byte put[2];   /* put_for_all */
byte taken[2]; /* taken_of_all */

byte slot[2 * SLOTS];     /* 0: half written; else an addend or a result, and the number of the slot */
bool is_used[2 * SLOTS];  /* filled, and its result not collected yet */
#define ADDEND(number) ((number) * 2 + 1)
#define RESULT(number) ((number) * 2 + 2)
#define OWN_SLOT(number) slot[me * SLOTS + (number) % SLOTS]
#define HIS_SLOT(number) slot[(1 - me) * SLOTS + (number) % SLOTS]
#define IS_USED(number) is_used[me * SLOTS + (number) % SLOTS]
#define PIECE_OF(turn, rank) (2 * (turn) + (rank))

/* TwoRankAllReduce::put */
inline put_addend(turn) {
  if
  :: PIECE_OF(turn, 1 - me) < pieces ->
     atomic { assert(!IS_USED(first + turn)); IS_USED(first + turn) = true; OWN_SLOT(first + turn) = 0 };
     OWN_SLOT(first + turn) = ADDEND(first + turn);
     put[me] = first + turn + 1
  :: else -> skip
  fi
}

/* TwoRankAllReduce::combine: the result takes the addend's place. */
inline combine(turn) {
  if
  :: PIECE_OF(turn, me) < pieces ->
     until(put[1 - me] > taken[me], 1 - me);
     atomic { assert(HIS_SLOT(taken[me]) == ADDEND(taken[me])); HIS_SLOT(taken[me]) = 0 };
#ifdef PLANT_TAKES_EARLY
     taken[me]++;
     HIS_SLOT(taken[me] - 1) = RESULT(taken[me] - 1)
#else
     HIS_SLOT(taken[me]) = RESULT(taken[me]);
     taken[me]++
#endif
  :: else -> skip
  fi
}

/* TwoRankAllReduce::collect */
inline collect(turn) {
  if
  :: PIECE_OF(turn, 1 - me) < pieces ->
#ifndef PLANT_COLLECTS_EARLY
     until(taken[1 - me] > first + turn, 1 - me);
#endif
     assert(OWN_SLOT(first + turn) == RESULT(first + turn));
     atomic { assert(OWN_SLOT(first + turn) == RESULT(first + turn)); IS_USED(first + turn) = false }
  :: else -> skip
  fi
}

proctype rank(byte me) {
  byte number, first, turn, how, who;
  {
    do
    :: number == CALLS -> break
    :: number < CALLS ->
       check();
       number++;
       entered[me] = number;
       until(entered[1 - me] >= number, 1 - me);
       /* TwoRankAllReduce::run */
       atomic { first = put[me]; turn = 0 };
       put_addend(0);
       do
       :: PIECE_OF(turn, 0) < pieces ->
          put_addend(turn + 1);
          combine(turn);
          if
          :: turn > 0 -> collect(turn - 1)
          :: else -> skip
          fi;
          turn++
       :: else -> break
       od;
       collect((pieces - 1) / 2);
       atomic { first = 0; turn = 0 }
    od;
    leave(false);
    goto over;

  lost:
    lose();
    atomic { number = 0; first = 0; turn = 0; how = 0; who = 0 };
    if
    :: goto end_stays
    :: leave(true)
    fi;
    goto over;
  end_stays:
    false;
  over:
    number = 0
  } unless {
    dead[me] -> atomic { number = 0; first = 0; turn = 0; how = 0; who = 0 }
  }
}

init {
  atomic {
    select(pieces : 1 .. PIECES);
    run rank(0);
    run rank(1)
  }
}
