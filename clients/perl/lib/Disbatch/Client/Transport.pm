package Disbatch::Client::Transport;

# How requests are sent, and sent again.

use strict;
use warnings;

use Carp qw(carp croak);
use Digest::SHA ();
use HTTP::Tiny 0.070;
use JSON::PP ();
use MIME::Base64 ();
use Time::HiRes ();
use Time::Local ();

use Disbatch::Client::Error;

our $VERSION = '0.1.0';

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;
# That makes Math::BigFloat of numbers when it decodes.
my $ENCODER = JSON::PP->new->utf8->canonical->allow_nonref->allow_bignum;

sub new {
    my ($class, %given) = @_;
    my %self = (timeout => 30, retries => 5, backoff => 0.5, backoff_max => 15, retry_after_max => 120);
    for (qw(url token username password ca_file timeout retries backoff backoff_max retry_after_max traceparent on_warning)) {
        my $value = delete $given{$_};
        $self{$_} = $value if defined $value;
    }
    croak 'unknown settings: ' . join ', ', sort keys %given if %given;
    if (!defined $self{token} && !defined $self{username}) {
        $self{$_} //= $ENV{"DISBATCH_\U$_"} for qw(token username password);
    }
    $self{url} //= $ENV{DISBATCH_URL} // 'http://localhost:8080';
    $self{url} =~ s{/+\z}{};
    # It is part of messages.
    croak 'the address of the DCI has a name or a password in it: use username and password' if $self{url} =~ m{//[^/?#]*@};
    my ($host) = $self{url} =~ m{\Ahttps?://(\[[^\]]+\]|[^:/?#]+)} or croak "$self{url} is no address of a DCI: http://HOST:PORT or https://..";
    my %http = (
        agent => "disbatch-perl/$VERSION", timeout => $self{timeout}, max_redirect => 0, verify_SSL => 1,
        defined $self{ca_file} ? (SSL_options => { SSL_ca_file => $self{ca_file} }) : (),
    );
    # A proxy of the environment would look for the server on its own host.
    @http{qw(proxy http_proxy https_proxy)} = () if $host =~ /\A(?:localhost|127\.0\.0\.1|\[::1\])\z/;
    $self{http} = Disbatch::Client::Transport::Connection->new(%http);
    return bless \%self, $class;
}

sub with_traceparent {
    my ($self, $traceparent) = @_;
    return bless { %$self, traceparent => $traceparent }, ref $self;
}

# Encodes and decodes.

sub encode { $ENCODER->encode($_[0]) }

sub decode {
    my ($call, $content) = @_;
    my $value = eval { [$JSON->decode($content)] };
    return $value->[0] if $value;
    Disbatch::Client::Error->throw(code => 'protocol', message => name($call) . ': the answer is no JSON; is this the address of a DCI?');
}

sub escape {
    my ($text, $keep) = @_;
    $text = "$text";
    utf8::encode($text);
    $keep //= '';
    $text =~ s/([^A-Za-z0-9_.~$keep-])/sprintf '%%%02X', ord $1/ge;
    return $text;
}

# A part of an address.
sub segment {
    my ($text) = @_;
    croak 'an id or a name is missing' if !defined $text;
    croak "'$text' cannot be part of an address" if $text =~ /\A\.{0,2}\z/;
    return escape($text);
}

sub as_text {
    my ($value) = @_;
    return join ',', map { as_text($_) } @$value if ref $value eq 'ARRAY';
    return $value ? 'true' : 'false' if JSON::PP::is_bool($value);
    return "$value";
}

# Texts of tags may have commas.
sub in_query {
    my ($name, $value) = @_;
    return as_text($value) if ref $value ne 'ARRAY' || !@$value || $name !~ /\A(?:any_)?tags\z/;
    my $json = encode($value);
    utf8::decode($json);
    return $json;
}

sub target {
    my ($call) = @_;
    my @query = @{ $call->{query} // [] };
    my @pairs;
    while (my ($name, $value) = splice @query, 0, 2) {
        push @pairs, escape($name) . '=' . escape(in_query($name, $value), ',:') if defined $value;
    }
    return @pairs ? "$call->{path}?" . join '&', @pairs : $call->{path};
}

sub name { "$_[0]{method} $_[0]{path}" }

# A key that nobody else has.
sub random_key {
    my $bytes = '';
    if (open my $random, '<:raw', '/dev/urandom') {
        read $random, $bytes, 16;
    }
    $bytes .= pack 'dNd', Time::HiRes::time(), $$, rand;
    return substr Digest::SHA::sha256_hex($bytes), 0, 32;
}

# Sends a request until it is answered, or is not to be sent again. Returns HTTP::Tiny's response.
sub send {
    my ($self, $call) = @_;
    return $self->again($call, sub { $self->once($call) });
}

sub json {
    my ($self, $call) = @_;
    return decode($call, $self->send($call)->{content});
}

# Tries until it works, or is not to be tried again.
sub again {
    my ($self, $call, $attempt) = @_;
    for (my $tried = 0; ; $tried++) {
        my $value;
        return $value if eval { $value = $attempt->(); 1 };
        $self->pause($call, $@, $tried);
    }
}

# Sends a request once. With `take`, a function, this gets what comes of an answer without an error, and its response.
sub once {
    my ($self, $call, $take) = @_;
    my %headers = (accept => 'application/json', %{ $call->{headers} // {} });
    if (defined $self->{token}) {
        $headers{authorization} = "Bearer $self->{token}";
    }
    elsif (defined $self->{username}) {
        my $who = "$self->{username}:" . ($self->{password} // '');
        utf8::encode($who);
        $headers{authorization} = 'Basic ' . MIME::Base64::encode_base64($who, '');
    }
    my $trace = ref $self->{traceparent} eq 'CODE' ? $self->{traceparent}->() : $self->{traceparent};
    $headers{traceparent} = $trace if defined $trace;
    my %options = (headers => \%headers);
    if (defined $call->{content}) {
        @options{qw(content)} = $call->{content};
        $headers{'content-type'} = 'application/octet-stream';
    }
    elsif (exists $call->{body}) {
        $options{content} = encode($call->{body});
        $headers{'content-type'} = 'application/json';
    }
    my ($refused, $broken) = ('');
    if ($take) {
        $options{data_callback} = sub {
            my ($data, $response) = @_;
            return $refused .= $data if $response->{status} !~ /\A2/;
            return if eval { $take->($data, $response); 1 };
            # HTTP::Tiny would make text of it.
            $broken = [$@];
            die "broken off\n";
        };
    }
    $self->{http}->timeout($self->{timeout} + ($call->{patience} // 0));
    my $response = $self->{http}->request($call->{method}, $self->{url} . target($call), \%options);
    die $broken->[0] if $broken;
    $response->{content} = $refused if $take && $response->{status} != 599;
    return $self->judged($call, $response);
}

sub judged {
    my ($self, $call, $response) = @_;
    my $name = name($call);
    if ($response->{status} == 599) {
        my $why = $response->{content} // '';
        $why =~ s/\s+\z//;
        my $sent = $why !~ /\A(?:Could not connect|SSL connection failed|Couldn't (?:set|start)|IO::Socket::SSL|Net::SSLeay|Unsupported URL)/;
        my $is_late = $why =~ /\ATimed out/;
        Disbatch::Client::Error->throw(
            code => $is_late ? 'request_timeout' : 'unreachable', sent => $sent,
            message => $is_late ? "$name: $self->{url} does not answer in time" : "$name: $self->{url}: $why",
        );
    }
    my $warning = $response->{headers}{'disbatch-warning'};
    if (defined $warning) {
        $self->{on_warning} ? $self->{on_warning}->("$name: $warning") : carp "$name: $warning";
    }
    return $response if $response->{success};
    my $body = eval { $JSON->decode($response->{content}) };
    die Disbatch::Client::Error->of_answer($response->{status}, $body, retry_after($response->{headers}{'retry-after'}), $name);
}

# Waits until the next try. Dies with the error if there is to be none.
sub pause {
    my ($self, $call, $error, $tried) = @_;
    die $error if $tried >= $self->{retries} || !is_worth_it($call, $error);
    my $longest = $self->{backoff} * 2**$tried;
    my $jitter = rand($longest < $self->{backoff_max} ? $longest : $self->{backoff_max});
    my $asked = $error->retry_after;
    if (defined $asked) {
        die $error if $asked > $self->{retry_after_max};
        $jitter = $asked + ($jitter < 1 ? $jitter : 1);
    }
    Time::HiRes::sleep($jitter);
}

sub is_worth_it {
    my ($call, $error) = @_;
    return 0 unless ref $error && eval { $error->isa('Disbatch::Client::Error') };
    my ($code, $status) = ($error->code, $error->status);
    return $code =~ /\A(?:unreachable|request_timeout)\z/ && ($call->{repeatable} || !$error->sent) if !defined $status;
    return 0 if $code =~ /\A(?:quota_exceeded|rejected)\z/;
    # 408 and 429 say that nothing was done. After the others it may have been.
    return $status =~ /\A(?:408|429)\z/ || ($call->{repeatable} && $status =~ /\A50[234]\z/);
}

my %MONTHS = do { my $n = 0; map { $_ => $n++ } qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec) };

# Seconds, or a date.
sub retry_after {
    my ($value) = @_;
    return undef if !defined $value;
    return $value + 0 if $value =~ /\A\d+\z/;
    my ($day, $month, $year, @time) = $value =~ /\A\w+, (\d+) (\w+) (\d{4}) (\d+):(\d+):(\d+) GMT\z/ or return undef;
    return undef if !exists $MONTHS{$month};
    my $left = Time::Local::timegm(reverse(@time), $day, $MONTHS{$month}, $year) - time;
    return $left > 0 ? $left : 0;
}

package Disbatch::Client::Transport::Connection;

# HTTP::Tiny sends GET, PUT and DELETE again by itself where a connection ends, even in the middle of an answer. It does so by these beginnings
# of messages. Here, `pause` says what is sent again.
our @ISA = ('HTTP::Tiny');

sub _request {
    my ($self, @arguments) = @_;
    my $response = eval { $self->SUPER::_request(@arguments) };
    return $response if $response;
    my $why = $@;
    $why =~ s/\A(?=Socket closed|Unexpected end|SSL read error)/the connection broke off: / if !ref $why;
    die $why;
}

1;
