// Statements and white space: templates and what Jinja (3.1, sandboxed, trim_blocks, lstrip_blocks) makes of
// them.
#include <gtest/gtest.h>

#include "text/chat_template.h"
#include "unit/text/chat_template_cases.h"

namespace snug::text {
namespace {

constexpr Case kStatements[] = {
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|dictsort %}{{ k }},{% endfor "
     "%}{% for k in d %}{{ k }} {% endfor %}{% for x in d|items %}{{ x }}{% endfor %}",
     "b=1;a=[1, 2, 'x'];items=key;a,b,items,b a items ('b', 1)('a', [1, 2, 'x'])('items', 'key')"},
    {"{% for m in msgs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
     "loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.cycle('a','b') }}{{ loop.previtem.content if not "
     "loop.first }}{{ loop.nextitem.content if loop.nextitem is defined }};{% endfor %}",
     "1032TrueFalse3ayo;2121FalseFalse3bhibye;3210FalseTrue3ayo;"},
    {"{% for x in [] %}a{% else %}none{% endfor %}{% for x in l if x > 1 %}{{ x }}/{{ loop.length }} {% else "
     "%}no{% endfor %}{% for x in l if x > 9 %}{% else %}no{% endfor %}{% for x in missing %}{% else "
     "%}undef{% endfor %}{% for c in 'añ' %}[{{ c }}]{% endfor %}",
     "none3/2 2/2 noundef[a][ñ]"},
    {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% if x == "
     "1 %}{% break %}{% endif %}{{ x }}{% endfor %}{% for a in [1,2] %}{% for b in [1,2,3] %}{% if b == 2 "
     "%}{% break %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}",
     "32311 21 "},
    {"{% set x = 1 %}{% for y in l %}{% set x = y %}{{ x }}{% endfor %}{{ x }}{% set ns = namespace(a=1, "
     "b='q') %}{% for y in l %}{% set ns.a = ns.a + y %}{% endfor %}{{ ns.a }}{{ ns.b }}{% if t %}{% set x = "
     "5 %}{% endif %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set z = 1, 2 %}{{ z }}",
     "31217q512(1, 2)"},
    {"{% set x %}hello {{ s }}{% endset %}{{ x|upper }}{% set y | upper | replace('B','-') %}abc{% endset "
     "%}{{ y }}{% filter upper %}abc {{ s }}{% endfilter %}",
     "HELLO HELLO WORLDA-CABC HELLO WORLD"},
    {"{% macro f(a, b=2, c=a) %}<{{ a }},{{ b }},{{ c }}>{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(b=1, "
     "a=0) }}{{ f() }}{{ f('x')|upper }}{% macro g() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ g(1, 2, "
     "k=3) }}{% macro h() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ h() }}",
     "<1,2,1><1,2,3><0,1,0><,2,><X,2,X>(1, 2){'k': 3}L"},
    {"{% macro w(t) %}[{{ t }}:{{ caller('z') }}]{% endmacro %}{% call(q) w('T') %}body {{ q }} {{ s }}{% "
     "endcall %}{% macro r(n) %}{{ n }}{% if n > 0 %}{{ r(n-1) }}{% endif %}{% endmacro %}{{ r(5) }}",
     "[T:body z hello World]543210"},
    {R"~({% raw %}{{ x }} {% if %}{% endraw %} {{ '}}' }} {{ "{%" }} {{ {'a': {'b': 1}}['a']['b'] }} {{ {'a':1}}})~",
     "{{ x }} {% if %} }} {% 1 {'a': 1}"},
    {"{% if n %}1{% elif i == 7 %}2{% elif t %}3{% else %}4{% endif %}{% if not missing %}m{% endif %}{% if "
     "l and d and s and not e and not n %}ok{% endif %}{% if [] %}{% elif {} %}{% elif 0 %}{% elif 0.0 %}{% "
     "else %}falsy{% endif %}",
     "2mokfalsy"},
    {"{{ range(3)|list }} {{ range(1,7,2)|list }} {{ range(3,0,-1)|list }} {{ range(0)|list }} {{ dict(a=1, "
     "b=2) }} {{ dict([('x',1)]) }} {{ dict({'q':1}, r=2) }} {% set j = joiner(', ') %}{% for x in l %}{{ "
     "j() }}{{ x }}{% endfor %}",
     "[0, 1, 2] [1, 3, 5] [3, 2, 1] [] {'a': 1, 'b': 2} {'x': 1} {'q': 1, 'r': 2} 3, 1, 2"},
    {R"~({{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2,'x')|list }} {% for g, items in msgs|groupby('role') %}{{ g }}:{{ items|length }} {% endfor %} {{ 'a b c'|wordcount }} {{ '<&>"\''|e }} {{ '<b>'|safe }} {{ {'b':1,'A':2}|dictsort }} {{ {'b':1,'a':2}|dictsort(by='value') }} {{ msgs[0]|attr('nope') is defined }})~",
     "[[1, 2], [3, 4], [5]] [[1, 2], [3, 'x']] assistant:1 user:2  3 &lt;&amp;&gt;&#34;&#39; <b> [('A', 2), "
     "('b', 1)] [('b', 1), ('a', 2)] False"},
    {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }} {{ msgs[-1].content }} {{ "
     "msgs[-1]['content'] }} {{ msgs[loop_index]|default('u') if false else 'k' }} {{ (msgs|first).role }} "
     "{{ msgs|map(attribute='role')|unique|join(',') }} {{ msgs[1:]|length }} {{ ([1,2,3]|last) + 1 }}",
     "3False bye bye k user user,assistant 2 4"},
    {"{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for i in range(3) %}{{ "
     "loop.changed(i // 2) }}{% endfor %}{{ true + true }} {{ 1.0 * 3 }} {{ 3 - 1.5 }} {{ 10 // 3.0 }} {{ -7 "
     "/ 2 }} {{ 5 % 3.5 }} {{ none is none }} {{ False }} {{ None }}",
     "123TrueFalseTrue2 3.0 1.5 3.0 -3.5 1.5 True False None"},
    {R"~({% set content = 'a<think>b</think>c' %}{% if '</think>' in content %}{% set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}{% set content = content.split('</think>')[-1].lstrip('\n') %}{{ reasoning }}|{{ content }}{% endif %})~",
     "b|c"},
    {"  {% if t %}\n  yes\n  {% endif %}\nend\n", "  yes\nend"},
    {"a\n  {%+ if t %}x{% endif %}  {# c #}  \nb", "a\n  x    \nb"},
    {" {{- s -}}   z {%- if t -%}   q   {%- endif +%}\n w {#- c -#}  \n  p\n\n", "hello Worldzq\n wp\n"},
    {"{{ 1 }}\n{{ 2 }}\n", "1\n2"},
    {"{% set x = 1 %}\n\n{{ x }}\n", "\n1"},
    {"x {% if t %} y {% endif %} z\n\t{% if t %}\n\tw\n{% endif %}", "x  y  z\n\tw\n"},
    {"\r\na\r\n{% if t %}\r\nb\r{% endif %}\r\n", "\na\nb\n"},
    {"{# a #}\n{# b -#}\n  c\n  {#- d #}e\n", "ce"},
    {"{% raw -%}\n  {{ q }}\n  {%- endraw %}\n z", "{{ q }} z"},
    {"  {% raw %}\n a {% endraw %}\n", "\n a "},
    {"{{ 'a\r\nb' }}\n   {%- for x in [1,2] %}\n   {{ x }}\n   {%- endfor %}\n", "a\nb   1   2"},
    {"{% for x in [1,2] -%}\n {{ x }}\n{%- endfor +%}\n.", "12\n."},
    {"{{ 1 }}  {% if t %}a{% endif %}\n  \n", "1  a  "},
    {"   {{ s }}   {%- set q = 1 -%}   {{ q }}   ", "   hello World1   "},
    {"\n\n{% if t %}\n\na\n\n{% endif %}\n\n", "\n\n\na\n\n"},
    {"{%- if t %} a {%- endif %} ", " a "},
    {"{% if t +%}\n a{% endif %}", "\n a"},
    {"a{#+ c +#}\nb", "a\nb"},
};

TEST(ChatTemplateStatements, RunAsJinjas) {
  for (const Case& c : kStatements) {
    const auto chat_template = ChatTemplate::parse(c.source, "test");
    ASSERT_TRUE(chat_template.ok()) << c.source << "\n" << chat_template.error().message;
    const auto text = chat_template->render(kVariables);
    ASSERT_TRUE(text.ok()) << c.source << "\n" << text.error().message;
    EXPECT_EQ(*text, c.expected) << c.source;
  }
}

// What Jinja refuses while rendering, Snug does too, with the template's name and the line.
TEST(ChatTemplateStatements, RefusesWhatJinjaRefuses) {
  const char* sources[] = {
      "\n{{ missing.x }}",
      "\n{{ missing + 1 }}",
      "\n{{ d.zz.y }}",
      "\n{{ 'a' + 1 }}",
      "\n{{ 1 + 'a' }}",
      "\n{{ l.append(4) }}",
      "\n{{ d.update({}) }}",
      "\n{% for x in 5 %}{% endfor %}",
      "\n{{ 1 < 'a' }}",
      "\n{{ n|length }}",
      "\n{{ range(1000000)|list }}",
      "\n{{ nofn() }}",
      "\n{{ s() }}",
      "\n{{ missing|tojson }}",
      "\n{% set a, b = 1 %}",
      "\n{% set a, b = (1,2,3) %}",
      "\n{% set d.x = 1 %}",
      "\n{{ 1/0 }}",
      "\n{{ 1 % 0 }}",
      "\n{{ s.index('zz') }}",
      "\n{{ 1 in s }}",
      "\n{{ ','.join([1]) }}",
      "\n{{ [1,'a']|sort }}",
      "\n{{ {[]:1} }}",
      "\n{{ ''.__class__.__mro__ }}",
      "\n{{ missing() }}",
      "\n{{ -missing }}",
      "\n{{ missing < 1 }}",
      "\n{{ missing|int }}",
      "\n{% macro f(a) %}{% endmacro %}{{ f(1,2) }}",
      "\n{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
      "\n{{ 'x'|nosuch }}",
      "\n{{ 1 is nosuch }}",
      "\n{{ s.split('') }}",
      "\n{{ none + 1 }}",
      "\n{{ none.x.y }}",
      "\n{{ range(1,5,0)|list }}",
      "\n{{ n[0].x }}",
      "\n{{ 5|join }}",
  };
  for (const char* source : sources) {
    const auto chat_template = ChatTemplate::parse(source, "test");
    ASSERT_TRUE(chat_template.ok()) << source;
    const auto text = chat_template->render(kVariables);
    ASSERT_FALSE(text.ok()) << source << "\n" << *text;
    EXPECT_EQ(text.error().code, ErrorCode::usage);
    EXPECT_TRUE(text.error().message.starts_with("test: line 2: ")) << source << "\n" << text.error().message;
  }
}

TEST(ChatTemplateStatements, RefusesBadSyntax) {
  const char* sources[] = {
      "\n{{ 1 +",
      "\n{% if t %}",
      "\n{% if %}x{% endif %}",
      "\n{% endfor %}",
      "\n{{ 'abc }}",
      "\n{{ (1 }}",
      "\n{# x",
      "\n{% raw %}x",
      "\n{% foo %}",
      "\n{{ a b }}",
      "\n{% for x %}{% endfor %}",
      "\n{{ }}",
      "\n{% set 1 = 2 %}",
      "\n{{ a ! b }}",
      "\n{% macro %}{% endmacro %}",
      "\n{% if t %}{% else %}{% else %}{% endif %}",
      "\n{{ [1,2 }}",
      "\n{{ a. }}",
      "\n{{ x|  }}",
      "\n{% elif %}",
      "\n{% for true in l %}{% endfor %}",
  };
  for (const char* source : sources) {
    const auto chat_template = ChatTemplate::parse(source, "test");
    ASSERT_FALSE(chat_template.ok()) << source;
    EXPECT_EQ(chat_template.error().code, ErrorCode::bad_file);
    EXPECT_TRUE(chat_template.error().message.starts_with("test: line 2: ")) << chat_template.error().message;
  }
}

}  // namespace
}  // namespace snug::text
