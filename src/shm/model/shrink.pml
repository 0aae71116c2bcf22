/* How the ranks that are left agree on a group: src/shm/group/shrink.cpp and src/shm/board/roll.h.
 *
 * Any rank may be killed between two steps, and any may stop waiting for another, as by a time-out: DEATHS and GIVE_UPS
 * say how often. A rank that is slow comes when the others have settled everything. What the ranks tell one another is
 * left out, and so is a group that all refuse to make: all of them have read the same.
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1
#endif
#define ROUNDS (DEATHS + GIVE_UPS + 1) /* each abandoned round has a death or a give-up of its own */

#define OPEN 0 /* Presence and Outcome */
#define IN 1
#define OUT 2
#define MADE 1
#define ABANDONED 2

byte presence[ROUNDS * RANKS];
byte outcome[ROUNDS];
bool told[2 * ROUNDS * RANKS];
#define PRESENCE(peer) presence[round * RANKS + peer]
#define TOLD(peer) told[(2 * round + turn) * RANKS + peer]

bool dead[RANKS];
byte deaths;
byte give_ups;

/* What became of each rank: the members of its group, a bit for each, or whether it was refused. */
byte group[RANKS];
bool is_refused[RANKS];
#define HAS(set, peer) (((set) >> (peer)) & 1)

#ifdef PLANT_NO_DEATH_CHECK
#define SEES_DEAD(peer) false
#else
#define SEES_DEAD(peer) dead[peer]
#endif
#ifdef PLANT_IGNORES_ABANDONED
#define IS_ABANDONED false
#else
#define IS_ABANDONED (outcome[round] == ABANDONED)
#endif

/* Roll::settle: the first counts. */
inline settle(word, wanted) {
#ifdef PLANT_OVERWRITES
  word = wanted
#else
  atomic {
    if
    :: word == OPEN -> word = wanted
    :: else -> skip
    fi
  }
#endif
}

/* Shrinking::members_of, of one peer. */
inline await_presence(peer) {
  do
  :: PRESENCE(peer) != OPEN -> break
  :: PRESENCE(peer) == OPEN && SEES_DEAD(peer) -> settle(PRESENCE(peer), OUT); break
  :: atomic { PRESENCE(peer) == OPEN && give_ups < GIVE_UPS -> give_ups++ }; settle(PRESENCE(peer), OUT); break
  od
}

/* Shrinking::exchanged, of one peer. */
inline await_told(peer) {
  do
  :: TOLD(peer) -> break
  :: !TOLD(peer) && (IS_ABANDONED || SEES_DEAD(peer)) -> is_complete = TOLD(peer); break
  :: atomic { !TOLD(peer) && give_ups < GIVE_UPS -> give_ups++ }; is_complete = TOLD(peer); break
  od
}

/* The group is made of ranks that came. All that have one have the same. Nobody is in it who was told that it is not.
 * Who is left out has died, or somebody stopped waiting for it. */
inline claim() {
  atomic {
    group[me] = members;
    assert(HAS(members, me));
    peer = 0;
    do
    :: peer == RANKS -> break
    :: peer < RANKS ->
       assert(group[peer] == 0 || group[peer] == members);
       assert(!(HAS(members, peer) && is_refused[peer]));
       assert(HAS(members, peer) || deaths > 0 || give_ups > 0);
       assert(HAS(members, peer) || group[peer] == 0);
       peer++
    od;
    peer = 0
  }
}

proctype rank(byte me) {
  byte round, turn, peer, awaited, members;
  bool is_complete;
  {
    awaited = (1 << RANKS) - 1;
    do
    :: assert(round < ROUNDS);
       settle(PRESENCE(me), IN);
       if
       :: PRESENCE(me) == OUT -> goto refused
       :: else -> skip
       fi;
       do
       :: peer == RANKS -> break
       :: peer < RANKS && HAS(awaited, peer) && peer != me -> await_presence(peer); peer++
       :: peer < RANKS && (!HAS(awaited, peer) || peer == me) -> peer++
       od;
       atomic { /* one step: all of it is settled, and does not change any more */
         members = 0;
         peer = 0;
         do
         :: peer == RANKS -> break
         :: peer < RANKS ->
            if
            :: HAS(awaited, peer) && PRESENCE(peer) == IN -> members = members | (1 << peer)
            :: else -> skip
            fi;
            peer++
         od;
         peer = 0
       };
       do
       :: turn == 2 -> break
       :: turn < 2 ->
          TOLD(me) = true;
          is_complete = true;
          do
          :: peer == RANKS || !is_complete -> break
          :: peer < RANKS && is_complete && HAS(members, peer) && peer != me -> await_told(peer); peer++
          :: peer < RANKS && is_complete && (!HAS(members, peer) || peer == me) -> peer++
          od;
          peer = 0;
          if
          :: !is_complete -> settle(outcome[round], ABANDONED)
#ifndef PLANT_MAKES_UNSETTLED
          :: is_complete && turn == 1 -> settle(outcome[round], MADE)
#else
          :: is_complete && turn == 1 -> goto made
#endif
          :: is_complete && turn == 0 -> skip
          fi;
          if
          :: (!is_complete || turn == 1) && outcome[round] == ABANDONED -> break
          :: else -> turn++
          fi
       od;
       if
       :: turn == 2 -> goto made
       :: else -> atomic { awaited = members; members = 0; turn = 0; is_complete = false; round++ }
       fi
    od;

  made:
    claim();
    goto over;
  refused:
    atomic { is_refused[me] = true; assert(!HAS(group[0] | group[1] | group[RANKS - 1], me)) };
  over:
    atomic { round = 0; turn = 0; peer = 0; awaited = 0; members = 0; is_complete = false }
  } unless {
    dead[me] -> atomic { round = 0; turn = 0; peer = 0; awaited = 0; members = 0; is_complete = false }
  }
}

/* Kills a rank between any two steps, one that has finished too. */
proctype killer() {
  byte victim;
end_idle:
  do
  :: deaths < DEATHS ->
     atomic {
       select(victim : 0 .. RANKS - 1);
       if
       :: !dead[victim] -> dead[victim] = true; deaths++
       :: else -> skip
       fi;
       victim = 0
     }
  :: break
  od
}

init {
  atomic {
    run rank(0);
    run rank(1);
#if RANKS == 3
    run rank(2);
#endif
    run killer()
  }
}
