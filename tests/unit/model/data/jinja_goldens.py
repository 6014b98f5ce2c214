#!/usr/bin/env python3
"""Write jinja_goldens.json: templates, their inputs and what Jinja2 makes of them.

  python3 jinja_goldens.py        needs jinja2 3.1 (Debian: python3-jinja2)

Each case is rendered by ImmutableSandboxedEnvironment with trim_blocks and lstrip_blocks, loop
controls, and the tojson, raise_exception and strftime_now that chat templates are written for.
`error` stands in for the text where Jinja2 refuses the template or its rendering.
"""

import json
import sys
from datetime import datetime, timezone
from pathlib import Path

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1_735_689_600 + 123_456  # 2025-01-02 10:17:36 UTC

MESSAGES = [
    {"role": "system", "content": " You are terse. "},
    {"role": "user", "content": "Hello <b>& 'you'</b>"},
    {"role": "assistant", "content": "Hi!\n\n  How are you?\n"},
    {"role": "user", "content": "naïve café 日本語 😀"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a \"city\"\nnow",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the city"},
                    "days": {"type": "integer", "enum": [1, 3, 7]},
                },
                "required": ["city"],
            },
        },
    }
]
CALLS = [
    {"role": "user", "content": "Weather in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}},
            {"id": "c2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "get_weather", "content": "{\"temp\": 21.5}"},
    {"role": "tool", "tool_call_id": "c2", "content": "12"},
    {"role": "assistant", "content": "21 and 12 degrees."},
    {"role": "user", "content": "Thanks"},
]
DATA = {
    "n": 7, "x": 2.5, "big": 9007199254740993, "neg": -7, "t": True, "f": False, "nil": None, "empty": "",
    "s": "Hello, World", "u": "straße ÉCOLE ǆ", "words": "  the quick\tbrown\n fox  ",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "ll": [[1, 2], [3, 4], []], "d": {"b": 2, "a": 1, "c": {"k": [1, {"z": None}]}},
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 40, "tags": []}],
    "lines": "one\ntwo\n\n  three\r\nfour", "csv": "a,b,,c", "items": "not a method", "quote": "it's \"q\" \\ \t \u00a0 \u200b",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2 ;; 7 // 2 ;; -7 // 2 ;; 7 % 3 ;; -7 % 3 ;; 7 % -3 ;; 2 ** 10 ;; 2 ** -1 ;; 7.5 // 2 ;; -7.5 % 2 ;; 1_000 + 1
1.0 ;; 1e3 ;; 1.5e-7 ;; 1e16 ;; 123456789.125 ;; 0.1 + 0.2 ;; 10 / 4 ;; 10 / 5 ;; 3 * 'ab' ;; 'ab' * 0 ;; [1] * 3 ;; -n ;; +n ;; - -n
-2 ** 2 ;; 2 ** 3 ** 2 ;; not t ;; not not t ;; not n > 3 ;; t and f or t ;; 1 and 2 ;; 0 or '' or 'z' ;; nil or 'dflt' ;; n and nil
1 < 2 < 3 ;; 1 < 3 < 2 ;; 1 == 1.0 ;; 'a' < 'b' ;; 'a' == 'a' != 'b' ;; [1, 2] == [1, 2] ;; [1, 2] < [1, 3] ;; (1, 2) == [1, 2] ;; true == 1
'ell' in s ;; 'x' not in s ;; 3 in l ;; 9 not in l ;; 'a' in d ;; 'zz' in d ;; '' in s ;; 2 in [1, 2] and 'b' in 'abc'
s ~ n ~ x ~ nil ~ t ;; 'a' ~ (1 + 2) ;; n if t else 'no' ;; n if f else 'no' ;; n if f ;; ('a' if f else 'b') ~ 'c' ;; 1 if f else 2 if f else 3
s[0] ;; s[-1] ;; s[1:4] ;; s[:5] ;; s[-5:] ;; s[::2] ;; s[::-1] ;; s[100:] ;; s[3:1] ;; u[2:6] ;; u[4] ;; l[0] ;; l[-1] ;; l[1:] ;; l[::-1] ;; l[:-1] ;; l[5:] ;; ll[0][1]
d.a ;; d['a'] ;; d.c.k[1].z ;; d['c']['k'][0] ;; d.missing ;; d['missing'] ;; l.0 ;; s.missing ;; nil.missing ;; missing
d ;; l ;; ll ;; (1,) ;; () ;; (1, 'a', none) ;; {'a': 1, 2: 'b'} ;; [none, true, 1.5, "x"] ;; {} ;; [] ;; ['it''s'] ;; quote ;; [quote] ;; [words]
[1, 2,] ;; {'a': 1,} ;; (1, 2,) ;; [[1, [2, [3]]]] ;; {'a': {'b': {'c': []}}}.a.b.c ;; ['x', 'y'][1] ;; {'k': 'v'}['k'] ;; (1 + 2) * 3 ;; ('a', 'b')[0]
'a' 'b' 'c' ;; 'tab\there' ;; "nl\nx" ;; 'q\'q' ;; "d\"d" ;; '\x41\u00e9\U0001F600' ;; '\\' ;; 'a\qb' ;; "{{ '{{' }}"
s | upper ;; s | lower ;; s|upper|lower ;; u | upper ;; u | lower ;; u | capitalize ;; u | title ;; 'hello big-world (now) it''s' | title ;; s | capitalize
words | trim ;; words | trim | length ;; 'xxaxx' | trim('x') ;; s | length ;; u | length ;; l | length ;; d | count ;; missing | length ;; nil | string ;; n | string ;; t | string
s | replace('l', 'L') ;; s | replace('l', 'L', 1) ;; s | replace('', '-') ;; s | replace('o', '') ;; l | first ;; l | last ;; s | first ;; s | last ;; [] | first ;; missing | default('d')
nil | default('d') ;; nil | default('d', true) ;; '' | default('d', boolean=true) ;; '' | d('q') ;; missing | default ;; n | default(1) ;; d.q | default('q')
l | join ;; l | join(', ') ;; ls | join('-') ;; people | join(', ', attribute='name') ;; s | join('.') ;; l | sort ;; l | sort(reverse=true) ;; ls | sort ;; ls | sort(case_sensitive=true)
people | map(attribute='name') | list ;; people | map(attribute='tags', default='none') | list ;; ls | map('upper') | list ;; l | map('string') | join('+') ;; ls | map('replace', 'a', 'o') | list
people | selectattr('age', 'gt', 30) | map(attribute='name') | list ;; people | rejectattr('age', '>', 30) | list | length ;; people | selectattr('tags') | list | length ;; people | selectattr('tags', 'defined') | list | length
l | select('odd') | list ;; l | reject('odd') | list ;; [0, 1, '', 'x'] | select | list ;; ls | select('equalto', 'a') | list ;; ls | select('in', ['a', 'b']) | list ;; people | selectattr('name', 'equalto', 'Ann') | first
l | reverse | list ;; s | reverse ;; l | sum ;; people | sum(attribute='age') ;; l | max ;; l | min ;; ls | max ;; people | map(attribute='age') | max ;; [1, 1, 2] | unique | list ;; ls | unique | list
x | round ;; 2.567 | round(2) ;; 2.5 | round ;; 3.5 | round ;; 2.1 | round(method='ceil') ;; 2.9 | round(method='floor') ;; x | int ;; '42' | int ;; '42.9' | int ;; 'zz' | int ;; 'zz' | int(5) ;; '3.5' | float ;; n | float ;; neg | abs ;; ' 12 ' | int
d | items | list ;; d | dictsort ;; d.items() | list ;; d.keys() | list ;; d.values() | list ;; d.get('a') ;; d.get('q') ;; d.get('q', 9) ;; people | sort(attribute='age') | map(attribute='name') | list ;; people | sort(attribute='name') | map(attribute='name') | join
d | tojson ;; l | tojson ;; s | tojson ;; quote | tojson ;; nil | tojson ;; t | tojson ;; x | tojson ;; u | tojson ;; people | tojson(indent=2) ;; {} | tojson ;; [] | tojson(indent=2) ;; d | tojson(indent=4) ;; [1, [2, {'a': 3}]] | tojson(indent=1) ;; '</script>&' | tojson ;; {1: 2, none: 3} | tojson
s.upper() ;; s.lower() ;; words.strip() ;; words.lstrip() ;; words.rstrip() ;; 'xxaxx'.strip('x') ;; 'abcab'.lstrip('ab') ;; words.split() ;; csv.split(',') ;; csv.split(',', 1) ;; csv.rsplit(',', 1) ;; words.split(none, 1) ;; words.rsplit(none, 1) ;; 'a<t>b<t>c'.split('<t>')[-1] ;; words.split(maxsplit=2)
s.startswith('Hell') ;; s.endswith('World') ;; s.startswith(('x', 'H')) ;; s.replace('l', 'L') ;; s.replace('l', 'L', 2) ;; s.title() ;; "it's a dog-day".title() ;; s.capitalize() ;; s.find('o') ;; s.find('zz') ;; u.find('C') ;; s.rfind('o') ;; s.count('l') ;; ', '.join(ls) ;; lines.splitlines() ;; u.upper()
'abc'.isalpha() ;; 'ab1'.isalpha() ;; '12'.isdigit() ;; ''.isdigit() ;; 'ab1'.isalnum() ;; ' \t'.isspace() ;; 'AB'.isupper() ;; 'ab'.islower() ;; 'aB'.islower() ;; 'prefix-x'.removeprefix('prefix-') ;; 'x.txt'.removesuffix('.txt') ;; 'x'.removesuffix('zz') ;; l.index(2) ;; l.count(3)
n is defined ;; missing is defined ;; missing is undefined ;; d.a is defined ;; d.q is not defined ;; nil is none ;; n is none ;; n is not none ;; s is string ;; n is string ;; n is number ;; t is number ;; t is boolean ;; n is integer ;; t is integer ;; x is float ;; d is mapping ;; l is mapping
l is iterable ;; s is iterable ;; n is iterable ;; d is iterable ;; l is sequence ;; d is sequence ;; n is sequence ;; missing is iterable ;; n is odd ;; n is even ;; n is divisibleby 7 ;; n is divisibleby(2) ;; n is eq 7 ;; n is gt 3 ;; n is le 7 ;; 'a' is in 'abc' ;; 3 is in l ;; n is sameas 7 ;; t is sameas true ;; t is true ;; f is false ;; n is true ;; 'ab' is lower ;; 'AB' is upper
range(5) | list ;; range(2, 5) | list ;; range(10, 0, -3) | list ;; range(0) | list ;; dict(a=1, b='x') ;; dict(a=1).a ;; namespace(a=3).a ;; strftime_now('%d %B %Y') ;; strftime_now('%Y-%m-%d %H:%M') ;; [1, 2] + [3] ;; (1,) + (2,) ;; 'a' + 'b' + 'c'
lines | indent ;; lines | indent(2) ;; lines | indent(2, true) ;; lines | indent(2, first=true, blank=true) ;; lines | indent('> ') ;; "<a href='x'>&</a>" | e ;; "<i>" | escape ;; s | safe ;; csv.split(',') | map('length') | list ;; big ;; big + 1 ;; n ~ '' ;; x * 2 ;; n * 1.5
s is defined and s is string and n is not string ;; not (n is odd) ;; n is odd and 'yes' or 'no' ;; (n is defined) ~ '!' ;; l | length > 2 ;; l | length == 3 and s | length > 100 ;; (l | first) + 1 ;; l | first + 1 ;; -l[0] ;; s.split(', ')[1][0:3] | upper ;; (s ~ '!') | upper ;; s ~ '!' | upper
d.items | string | length > 0 ;; s.upper | string | length > 0 ;; loop is defined ;; messages | length ;; messages[0].role ;; messages[-1]['content'] ;; messages[1:] | length ;; messages[::-1][0].role ;; messages | map(attribute='role') | join(',') ;; messages | selectattr('role', 'equalto', 'user') | list | length
"""

STATEMENTS = {
    "if-elif-else": "{% if n > 10 %}big{% elif n > 5 %}mid{% else %}small{% endif %}{% if f %}x{% endif %}|{% if not f %}y{% endif %}",
    "for-loop-variables": "{% for i in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}:{{ i }};{% endfor %}",
    "for-neighbours": "{% for i in l %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem if not loop.last else 'end' }} {% endfor %}{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "for-else": "{% for i in [] %}x{% else %}none{% endfor %}{% for i in l %}{{ i }}{% else %}none{% endfor %}",
    "for-filter": "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% else %}none{% endfor %}",
    "for-unpack": "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, b) in [(1, 2), (3, 4)] %}{{ a + b }},{% endfor %}",
    "for-dict-and-string": "{% for k in d %}{{ k }}{% endfor %}-{% for c in 'aé😀' %}[{{ c }}]{% endfor %}",
    "for-nested": "{% for a in ll %}{% set outer = loop %}{% for b in a %}{{ outer.index }}.{{ loop.index }}={{ b }} {% endfor %}{% endfor %}{{ loop }}",
    "for-cycle": "{% for i in range(5) %}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{% endfor %}",
    "break-continue": "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "set-scopes": "{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }},{% endfor %}{{ a }}{% if t %}{% set a = 9 %}{% endif %}{{ a }}",
    "set-in-loop-is-fresh": "{% for i in range(3) %}{{ q is defined }}{% if i == 0 %}{% set q = 1 %}{% endif %}{{ q is defined }} {% endfor %}",
    "set-tuple": "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (x1, y1) = ['p', 'q'] %}{{ x1 ~ y1 }}",
    "set-block": "{% set a %}<{{ n }}>{% endset %}{{ a }}{{ a | length }}{% set b | upper %}abc{{ s }}{% endset %}{{ b }}",
    "namespace": "{% set ns = namespace(found=false, c=0) %}{% for i in l %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.found }}{{ ns.c }}{{ ns.zzz is defined }}",
    "macro": "{% macro m(a, b='x', c=none) %}({{ a }}|{{ b }}|{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m(1, c='z') | upper }}{{ m() }}",
    "macro-recursion": "{% macro r(v, depth=0) %}{% if v is mapping %}{ {%- for k, w in v | dictsort %}{{ k }}:{{ r(w, depth + 1) }}{% if not loop.last %},{% endif %}{% endfor -%} }{% elif v is iterable and v is not string %}[{% for w in v %}{{ r(w, depth + 1) }}{% endfor %}]{% else %}{{ v }}@{{ depth }}{% endif %}{% endmacro %}{{ r(d) }}",
    "macro-sees-globals": "{% set g = 1 %}{% macro m() %}{{ g }}{{ n }}{% endmacro %}{% set g = 2 %}{{ m() }}{% for g in [5] %}{{ m() }}{% endfor %}",
    "macro-locals-stay": "{% macro m() %}{% set z = 5 %}{{ z }}{% endmacro %}{{ m() }}{{ z is defined }}",
    "raw-and-comments": "a{# c {{ n }} #}b{% raw %}{{ n }}{% if %}{% endraw %}c{#- d -#}  e",
    "trim-blocks": "{% if t %}\n  line\n{% endif %}\n{% for i in l %}\n  - {{ i }}\n{% endfor %}\nend\n",
    "lstrip-blocks": "  {% if t %}\n    x\n   {% endif %}\n  {{ n }}\n  {# c #}\n  y {% if t %}z{% endif %}\n",
    "minus-signs": "a  \n {%- if t -%}  \n b \n {%- endif -%}\n  c {{- n -}}  d  {{ n }}\n\n {{- n }}",
    "plus-signs": "a\n  {%+ if t %}\nb\n  {%+ endif +%}\nc{{+ n }}",
    "newline-after-variable": "{{ n }}\n{{ n }}\n\n",
    "carriage-returns": "a\r\nb\r{% if t %}\r\nc{% endif %}\r\n",
    "generation-less": "{% if true %}{% if not false %}{{ none is none }}{% endif %}{% endif %}",
    "string-with-tags": "{{ '%}' ~ '}}' ~ '{#' }}{% if '%}' == '%}' %}ok{% endif %}",
    "dict-in-output": "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x': 1} }}",
    "undefined-is-silent": "[{{ missing }}][{{ d.q }}][{% for i in missing %}x{% endfor %}][{{ missing is none }}]{% if missing %}x{% endif %}{{ missing == nil }}{{ missing == '' }}",
    "long-chain": "{{ " + " + ".join(["n"] * 90) + " }}{{ " + " ~ ".join(["s"] * 50) + " }}{{ " + " and ".join(["t"] * 90) + " }}",
    "many-elifs": "{% if n == 100 %}{% endif %}" + "{% if n == 0 %}0" + "".join(f"{{% elif n == {i} %}}{i}" for i in range(1, 60)) + "{% endif %}",
    "filters-in-condition": "{% if l | length > 2 and s | lower == 'hello, world' %}y{% endif %}{% for p in people | selectattr('tags', 'defined') | list %}{{ p.name }}{% endfor %}",
    "inline-if-in-set": "{% set a = 'x' if missing is not defined else missing %}{{ a }}{% set b = messages if messages else [] %}{{ b | length }}",
    "expression-ends": "{{ n}}{{n }}{{n}}{{ n\n}}{%if t%}y{%endif%}{% if(t) %}z{% endif %}{{ (n) }}{{ [n][0] }}",
    "comparison-of-roles": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}a{% else %}b{% endif %}{% endfor %}",
}

ERRORS = {
    "plus-after-concat": "{{ 'a' ~ 1 + 2 }}", "undefined-member-default": "{{ missing.x | default('q') }}", "minus-list": "{{ - l | first }}",
    "raise": "a{{ raise_exception('roles must alternate') }}",
    "undefined-attribute": "{{ missing.x }}", "undefined-call": "{{ missing() }}", "undefined-sum": "{{ missing + 1 }}",
    "undefined-order": "{{ missing < 1 }}", "none-iterated": "{% for i in nil %}{% endfor %}", "number-iterated": "{% for i in n %}{% endfor %}",
    "string-plus-number": "{{ s + n }}", "number-plus-none": "{{ n + nil }}", "order-of-kinds": "{{ s < n }}", "in-a-number": "{{ 1 in n }}",
    "number-in-string": "{{ 1 in s }}", "division": "{{ 1 / 0 }}", "modulo": "{{ 1 % 0 }}", "zero-stride": "{{ l[::0] }}",
    "unpack-too-few": "{% set a, b = [1] %}", "unpack-too-many": "{% set a, b = [1, 2, 3] %}", "call-a-string": "{{ s() }}",
    "unknown-method": "{{ s.nothing() }}", "append": "{% set _ = l.append(1) %}", "update": "{{ d.update({'a': 3}) }}", "pop": "{{ d.pop('a') }}",
    "set-member-of-dict": "{% set d.x = 1 %}", "too-many-arguments": "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "unknown-argument": "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "unknown-filter": "{{ s | nofilter }}", "unknown-test": "{{ s is notest }}",
    "unknown-tag": "{% nonsense %}", "unclosed-if": "{% if t %}x", "unclosed-tag": "{{ n ", "unclosed-string": "{{ 'abc }}", "unclosed-comment": "a {# b",
    "stray-end": "a{% endif %}", "stray-bracket": "{{ n ) }}", "wrong-bracket": "{{ (n ] }}", "empty-output": "{{ }}", "two-operators": "{{ n + * n }}",
    "dunder": "{{ s.__class__.__mro__ }}", "dunder-item": "{{ s['__class__']['x'] }}", "globals": "{{ range.__globals__.x }}",
    "unsafe-range": "{{ range(10000000) | list | length }}", "break-outside": "{% break %}", "key-is-a-list": "{{ {[1]: 2} }}",
    "content-is-a-list": "{{ 'a' + messages }}", "sort-of-kinds": "{{ [1, 'a'] | sort }}", "join-of-numbers": "{{ ','.join(l) }}", "index-missing": "{{ l.index(99) }}",
}

# Templates in the manner of well-known models: the constructs they use, in our own words.
CHATML_TOOLS = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nCall them inside <tool_call></tool_call>:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or (not loop.last and reasoning)) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' ~ content ~ '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

HEADERS = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- for call in message.tool_calls %}
            {%- set tool_call = call.function %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
            {{- "<|eot_id|>" }}
        {%- endfor %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

INST = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant, and tool roles are supported") }}
    {%- endif %}
{%- endfor %}
"""

TURNS = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

TYPESCRIPT = r"""
{%- macro render_type(spec, required_params) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{- render_type(spec['items'], []) ~ "[]" }}{%- else -%}{{- "any[]" }}{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.enum is defined -%}
        {%- for e in spec.enum -%}{{- e | tojson }}{%- if not loop.last %} | {% endif -%}{%- endfor -%}
    {%- elif spec.type == "object" -%}
        {{- "{\n" }}
        {%- for prop, sub in spec.properties.items() -%}
            {%- if sub.description -%}{{- "  // " + sub.description + "\n" }}{%- endif -%}
            {{- "  " + prop }}
            {%- if prop not in (required_params or []) -%}{{- "?" }}{%- endif -%}
            {{- ": " }}{{- render_type(sub, sub.required) }}{{- ",\n" }}
        {%- endfor -%}
        {{- "}" }}
    {%- elif spec.type == "integer" or spec.type == "number" -%}{{- "number" }}
    {%- else -%}{{- spec.type }}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools %}
{{ "// " + tool.function.description.split("\n")[0] + "\n" -}}
type {{ tool.function.name }} = (_: {{ render_type(tool.function.parameters, tool.function.parameters.required) }}) => any;
{% endfor -%}
"""

CONVERSATIONS = {
    "plain": {"messages": MESSAGES, "tools": None, "add_generation_prompt": True},
    "no-system": {"messages": MESSAGES[1:], "tools": None, "add_generation_prompt": False},
    "tools": {"messages": MESSAGES, "tools": TOOLS, "add_generation_prompt": True},
    "calls": {"messages": CALLS, "tools": TOOLS, "add_generation_prompt": True},
    "not-alternating": {"messages": MESSAGES[1:2] * 2, "tools": None, "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": " look "}, {"type": "image"}]}], "tools": None, "add_generation_prompt": True},
    "thoughts": {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "<think>\nadd\n</think>\n\n4"}], "tools": None, "add_generation_prompt": True},
    "quiet": {"messages": MESSAGES[:2], "tools": None, "add_generation_prompt": True, "enable_thinking": False},
}
MODELS = {"chatml-tools": CHATML_TOOLS, "headers": HEADERS, "inst": INST, "turns": TURNS, "typescript": TYPESCRIPT}


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(NOW, timezone.utc).strftime(f)
    return env


def split_expressions():
    """The expressions of EXPRESSIONS, separated by ';;'."""
    for number, line in enumerate(EXPRESSIONS.strip().splitlines()):
        for index, expression in enumerate(line.split(" ;; ")):
            yield f"expression-{number:02}-{index:02}", "{{ " + expression.strip() + " }}"


def main():
    cases = [(name, text, "data") for name, text in split_expressions()]
    cases += [("statement-" + name, text, "data") for name, text in STATEMENTS.items()]
    cases += [("error-" + name, text, "data") for name, text in ERRORS.items()]
    cases += [
        (f"model-{model}-{name}", text, name)
        for model, text in MODELS.items()
        for name in CONVERSATIONS
        if not (model == "typescript" and not CONVERSATIONS[name]["tools"])
    ]
    inputs = {"data": DATA | {"messages": MESSAGES, "tools": None, "add_generation_prompt": True}} | CONVERSATIONS
    env, out = environment(), []
    for name, text, given in cases:
        variables = {"bos_token": "<s>", "eos_token": "</s>", "documents": None} | inputs[given]
        case = {"name": name, "template": text, "input": given}
        try:
            case["text"] = env.from_string(text).render(**variables)
        except Exception as error:  # whatever Jinja2 or Python says, it is no text
            case["error"] = f"{type(error).__name__}: {error}"
        if ("error" in case) != name.startswith("error-") and not name.startswith("model-"):
            sys.exit(f"not as its name says: {case}")
        out.append(case)
    path = Path(__file__).with_name("jinja_goldens.json")
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in out)
    head = json.dumps({"now": NOW, "inputs": inputs}, ensure_ascii=True)[1:-1]
    path.write_text("{" + head + ', "cases": [\n' + lines + "\n]}\n", encoding="ascii")
    print(f"{len(out)} cases, {sum('error' in case for case in out)} of them errors")


if __name__ == "__main__":
    main()
