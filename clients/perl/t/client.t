# What the conformance suite cannot see.

use strict;
use warnings;
use utf8;

use Test::More;

use Disbatch::Client;

is_deeply [map { Disbatch::Client::Transport::retry_after($_) } '7', 'Wed, 21 Oct 2015 07:28:00 GMT', 'soon', undef], [7, 0, undef, undef],
    'Retry-After is a number or a date';

is_deeply [map { scalar @$_ } Disbatch::Client::_parts([({}) x 2500])], [1000, 1000, 500], 'requests are cut by number';
my $large = { x => 'y' x (5 * 1024 * 1024) };
is_deeply [map { scalar @$_ } Disbatch::Client::_parts([$large, $large, {}, {}])], [1, 3], 'and by size';

sub error {
    my ($status, $body, %more) = @_;
    return $status ? Disbatch::Client::Error->of_answer($status, $body // {}, undef, 'GET /') : Disbatch::Client::Error->new(%more);
}

sub is_tried {
    my (@error) = @_;
    return [map { Disbatch::Client::Transport::is_worth_it({ repeatable => $_ }, error(@error)) ? 1 : 0 } 1, 0];
}

is_deeply is_tried(undef, undef, code => 'unreachable'), [1, 0], 'what broke off is tried again if it may be';
is_deeply is_tried(undef, undef, code => 'unreachable', sent => 0), [1, 1], 'what was not sent always';
is_deeply is_tried(undef, undef, code => 'protocol'), [0, 0], 'nonsense never';
is_deeply is_tried($_), [1, 0], "$_ if it may be" for 502 .. 504;
is_deeply is_tried($_), [1, 1], "$_ always" for 408, 429;
is_deeply is_tried($_), [0, 0], "$_ never" for 400, 404, 409, 500;
is_deeply is_tried(429, { limit => 'max_queued' }), [0, 0], 'a quota is an answer';
is_deeply is_tried(503, { rule => {} }), [0, 0], 'and so is a rule';

for my $text ('', '.', '..') {
    ok !eval { Disbatch::Client->new(url => 'http://127.0.0.1:9')->get($text); 1 }, "'$text' is no id";
}
ok !eval { Disbatch::Client->new(urk => 1); 1 }, 'a misspelt setting';
like $@, qr/unknown settings: urk/, 'is named';
ok !eval { Disbatch::Client->new(url => 'http://alice:horse@localhost'); 1 }, 'a password is no part of the address';
like $@, qr/\A(?!.*horse).*username and password/, 'nor of the message';
is Disbatch::Client::Transport::escape('a b/ü'), 'a%20b%2F%C3%BC', 'addresses are UTF-8';
isnt Disbatch::Client::Transport::random_key(), Disbatch::Client::Transport::random_key(), 'no key comes twice';
is error(404, { error => 'no task' }) . '', "GET /: 404 no task\n", 'an error can be printed';

done_testing;
