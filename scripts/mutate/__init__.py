"""Mutation testing: change the program in small ways and see whether the tests fail.

    python -m scripts.mutate [FILE...]

A mutant is the program with one change inside a function: a statement is left out, a condition
negated, or a comparison, a constant or a returned value replaced. If a test fails, does not end or
kills its process, the mutant is caught. Otherwise it survives: a test is missing, the line is not
needed, or the change makes no difference.

Without FILE, the changes are a fixed sample over six folders (`changes.SHARES`). A change is in the
sample by a hash of its file, function and text, so that an edit of another function does not change
which are drawn. With FILE, they are all changes in these files, or `--sample N` of them.

How it works:

* `changes.py` finds the places and compiles mutants. Code outside functions is not changed:
  constants and tables of a module, class bodies, decorators and defaults of arguments. Log calls,
  assertions and annotations are not changed either.
* `functions.py` replaces the code of functions that exist already. So one process imports the
  program and collects the tests, and forks for each mutant (`forks.py`).
* `reached.py` first runs all tests once, with a probe at each place, and records which tests reach
  it and what each test costs. This map is kept in `.mutate/` until a test or the program changes.
* `trials.py` runs the tests that reach a change, the cheapest first, until one fails or the budget
  of CPU time is used up. The test that failed must then pass in a process without the change.

Programs that a test starts run the unchanged source, so only tests that work in their own process
can catch a mutant.
"""
