#!/usr/bin/env python3
"""The plugins of the example. The first argument says which one this is to be."""

import json
import os
import sys
import time

BOLD, DIM, RED, GREEN, YELLOW, BLUE, RESET = (f"\033[{code}m" for code in (1, 2, 31, 32, 33, 34, 0))

TABLES = {
    "customers": 182_340, "addresses": 240_118, "orders": 1_940_552, "order_lines": 6_120_871, "invoices": 1_873_004,
    "payments": 1_801_377, "products": 48_213, "prices": 311_090, "stock": 96_426, "shipments": 1_902_340,
    "returns": 84_551, "events": 22_418_906,
}


def tell(**message):
    print(json.dumps(message), file=control, flush=True)


def say(text):
    print(text, flush=True)


def backup(params):
    database = params["database"]
    say(f"{BOLD}Backing up {database}{RESET} to {BLUE}{params['target']}{RESET}")
    for done, (table, rows) in enumerate(TABLES.items()):
        tell(progress={"percent": 100 * done // len(TABLES), "message": f"{table}, table {done + 1} of {len(TABLES)}"})
        # The large ones still run when their picture is taken.
        if database in ("warehouse", "archive") and table == "shipments":
            say(f"{YELLOW}…{RESET} {table:<12} {rows:>12,} rows  {DIM}copying{RESET}")
            time.sleep(3600)
        time.sleep(0.02)
        say(f"{GREEN}✔{RESET} {table:<12} {rows:>12,} rows  {DIM}{rows / 412_000:6.1f} s{RESET}")
    say(f"{GREEN}{BOLD}done{RESET}, {sum(TABLES.values()):,} rows")
    tell(result={"tables": len(TABLES), "rows": sum(TABLES.values()), "file": f"{params['target']}/{database}.dump.zst"})


def thumbnails(params):
    say(f"reading {params['image']}")
    for size in params["sizes"]:
        # These are slow.
        time.sleep(3600 if params.get("format") == "avif" else 0.02)
        say(f"{GREEN}✔{RESET} {size:>4} px  {size * size // 7:>9,} bytes  {DIM}{params.get('format', 'webp')}{RESET}")
    tell(result={"written": len(params["sizes"])})


def invoices(params):
    say(f"month {params['month']}, customer {params['customer']}")
    say("24 deliveries, 3 credit notes")
    if params["customer"] == "C-20817":
        print(f"{RED}{BOLD}error{RESET}{RED}: customer C-20817 has no tax id, so there can be no invoice{RESET}", file=sys.stderr)
        print(f"{DIM}  at billing/invoice.py, line 214, in total{RESET}", file=sys.stderr)
        print(f"{DIM}  at billing/tax.py, line 58, in rate_of{RESET}", file=sys.stderr)
        print(f"{YELLOW}hint{RESET}: complete the customer, then run this task again", file=sys.stderr)
        sys.exit(1)
    say(f"{GREEN}✔{RESET} 1,284.60 EUR, sent to the archive")


def imports(params):
    say(f"asking {params['shop']} for orders since {params['since']}")
    if params["shop"] == "shop-us":
        say("nothing new")
        tell(status=3)
        return
    # The next version counts otherwise.
    known = 5 if sys.argv[2:] and params["since"] == "2026-11-20" else 3
    say(f"{GREEN}214{RESET} orders, {YELLOW}{known}{RESET} of them known already")
    tell(result={"orders": 214 - known, "known": known})


def mail(params):
    say(f"sent to {params['to']}")


task = json.load(sys.stdin)
with open(int(os.environ["DISBATCH_CONTROL_FD"]), "w") as control:
    {"backup": backup, "thumbnails": thumbnails, "invoices": invoices, "imports": imports, "mail": mail}[sys.argv[1]](task["params"])
