#!/usr/bin/perl
# Runs a Perl plugin for one task.
#
#     perl disbatch-perl.pl --class NAME [--lib FOLDER]...
#
# The task comes as one line of JSON on standard input, as every plugin gets it. What run() returns goes to the file
# TASK-response.json in the private folder. What the plugin prints is not part of that. The environment has
# DISBATCH_TASK_ID, DISBATCH_WORK_DIR, DISBATCH_CONTROL_FD and DISBATCH_PERL_CONFIG, the configuration file.
#
# Every task pays for what is loaded here: nothing but pragmas, whatever else is needed only where it is needed. Not
# even JSON::PP, whose start takes longer than all of this.

use 5.012;
use strict;
use warnings;

# ---------------------------------------------------------------------------------------------------------------
# JSON

package Disbatch::Harness::JSON;

use strict;
use warnings;

my %UNESCAPED = (
    '"' => '"', '\\' => '\\', '/' => '/', b => "\b", f => "\f", n => "\n", r => "\r", t => "\t",
);
my %ESCAPED = (
    '"' => '\\"', '\\' => '\\\\', "\b" => '\\b', "\f" => '\\f', "\n" => '\\n', "\r" => '\\r', "\t" => '\\t',
);

# MongoDB nests no document deeper.
my $DEEPEST = 100;

# The value that is written in these bytes of UTF-8. `%how`: `relaxed` for comments, and commas and tabs where JSON
# has none; `booleans`, a function that makes 1 and 0 what they are to be.
sub parse {
    my ($bytes, %how) = @_;
    local $_ = $bytes;
    my $blank = $how{relaxed} ? qr/\G(?:[ \t\r\n]|#[^\n]*)+/ : qr/\G[ \t\r\n]+/;
    my $boolean = $how{booleans} || sub { $_[0] };
    my $wrong = sub { die "no JSON at byte ", pos($_) // 0, "\n" };
    my ($value, $string);

    $string = sub {
        my $text = '';
        while (1) {
            if    (/\G([^"\\]+)/gc)        { $text .= $1 }
            elsif (/\G"/gc)                { last }
            elsif (/\G\\(["\\\/bfnrt])/gc) { $text .= $UNESCAPED{$1} }
            elsif (/\G\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})/gc) {
                my $character = chr(0x10000 + ((hex($1) - 0xd800) << 10) + hex($2) - 0xdc00);
                utf8::encode($character);
                $text .= $character;
            }
            elsif (/\G\\u([0-9a-fA-F]{4})/gc) {
                my $code = hex $1;
                # Half a character has no meaning.
                my $character = chr($code >= 0xd800 && $code <= 0xdfff ? 0xfffd : $code);
                utf8::encode($character);
                $text .= $character;
            }
            else { $wrong->() }
        }
        utf8::decode($text) or $wrong->();
        return $text;
    };

    my $depth = 0;
    $value = sub {
        /$blank/gc;
        return $string->() if /\G"/gc;
        return 0 + $1 if /\G(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)/gc;
        return $boolean->(1) if /\Gtrue/gc;
        return $boolean->(0) if /\Gfalse/gc;
        return undef if /\Gnull/gc;
        no warnings 'recursion';
        $wrong->() if ++$depth > 200;
        my $made;
        if (/\G\[/gc) {
            $made = [];
            /$blank/gc;
            until (/\G\]/gc) {
                push @$made, $value->();
                /$blank/gc;
                last if /\G\]/gc;
                /\G,/gc or $wrong->();
                /$blank/gc;
                $wrong->() if !$how{relaxed} && /\G\]/;
            }
        }
        elsif (/\G\{/gc) {
            $made = {};
            /$blank/gc;
            until (/\G\}/gc) {
                /\G"/gc or $wrong->();
                my $key = $string->();
                /$blank/gc;
                /\G:/gc or $wrong->();
                $made->{$key} = $value->();
                /$blank/gc;
                last if /\G\}/gc;
                /\G,/gc or $wrong->();
                /$blank/gc;
                $wrong->() if !$how{relaxed} && /\G\}/;
            }
        }
        else { $wrong->() }
        $depth--;
        return $made;
    };

    pos($_) = 0;
    my $parsed = eval { $value->() };
    my $error = $@;
    if ($error eq '') {
        /$blank/gc;
        $error = 'no JSON at byte ' . pos($_) . "\n" if (pos($_) // 0) < length $_;
    }
    # It refers to itself.
    undef $value;
    die $error if $error ne '';
    return $parsed;
}

# Whether ids and dates are text, and not extended JSON.
our $is_plain;

# A value of Perl as JSON, in bytes. What JSON has no words for is Perl's text of it.
sub render {
    my ($value, $depth) = @_;
    return 'null' unless defined $value;
    my $type = ref $value or return scalar_($value);
    $depth = ($depth // 0) + 1;
    return text(text_of($value)) if $depth > $DEEPEST;
    no warnings 'recursion';
    if ($type eq 'HASH') {
        my @pairs = map { text($_) . ':' . render($value->{$_}, $depth) } sort keys %$value;
        return '{' . join(',', @pairs) . '}';
    }
    return '[' . join(',', map { render($_, $depth) } @$value) . ']' if $type eq 'ARRAY';
    return object($value, $type, $depth);
}

my %BOOLEAN = map { $_ => 1 } 'boolean', 'JSON::PP::Boolean', 'Types::Serialiser::Boolean';

sub object {
    my ($value, $type, $depth) = @_;
    return $$value ? 'true' : 'false' if $BOOLEAN{$type};
    # As JSON's modules have it: \1 and \0.
    return $$value eq '1' ? 'true' : 'false' if $type eq 'SCALAR' && defined $$value && $$value =~ /^[01]\z/;
    if (UNIVERSAL::isa($value, 'BSON::OID')) {
        return $is_plain ? qq("$value") : qq({"\$oid":"$value"});
    }
    return date($value->{value}) if UNIVERSAL::isa($value, 'BSON::Time');
    if (UNIVERSAL::isa($value, 'DateTime') || UNIVERSAL::isa($value, 'Time::Moment')) {
        return date(sprintf '%.0f', 1000 * $value->epoch + $value->millisecond);
    }
    my $converted = eval { my $convert = $value->can('TO_JSON'); $convert ? [$value->$convert] : undef };
    return render($converted->[0], $depth) if $converted;
    return text(text_of($value));
}

# A date, given in milliseconds since 1970.
sub date {
    my ($milliseconds) = @_;
    return $is_plain ? '"' . iso($milliseconds) . '"' : qq({"\$date":{"\$numberLong":"$milliseconds"}});
}

# The same as ISO 8601 writes it, in UTC, with the fraction that it has.
sub iso {
    my ($milliseconds) = @_;
    my $fraction = $milliseconds % 1000;
    my ($second, $minute, $hour, $day, $month, $year) = gmtime(($milliseconds - $fraction) / 1000);
    my $text = sprintf '%04d-%02d-%02dT%02d:%02d:%02d', $year + 1900, $month + 1, $day, $hour, $minute, $second;
    return $text . ($fraction ? sprintf '.%03dZ', $fraction : 'Z');
}

# What Perl makes of a value in text, even if the value would rather die.
sub text_of {
    my ($value) = @_;
    my $text;
    return $text if eval { $text = "$value"; defined $text };
    return 'an object of ' . ref($value) . ' that has no text';
}

sub scalar_ {
    my ($value) = @_;
    return text($value) unless is_number($value);
    my $number = "$value";
    # Perl writes 15 digits, of which some numbers have more.
    { no warnings 'numeric'; $number = sprintf '%.17g', $value if $number != $value }
    return $number =~ /^-?[0-9]/ ? $number : text($number);
}

# Whether it is a number to Perl, and not text that looks like one. Bits of two texts are combined as text, and
# nothing combined with any text is nothing.
sub is_number {
    my ($value) = @_;
    no warnings 'numeric';
    return if utf8::is_utf8($value);
    return ('' & $value) ne '';
}

sub text {
    my ($text) = @_;
    # In copies: callers keep theirs.
    $text = "$text";
    if ($text =~ /[^\x00-\x7f]/) {
        no warnings;
        # Perl's characters may be more than there are.
        $text =~ s/[^\x{0}-\x{d7ff}\x{e000}-\x{10ffff}]/\x{fffd}/g if utf8::is_utf8($text);
        utf8::encode($text);
    }
    $text =~ s/([\x00-\x1f"\\\x7f])/$ESCAPED{$1} \/\/ sprintf '\\u%04x', ord $1/ge;
    return qq("$text");
}

# ---------------------------------------------------------------------------------------------------------------
# Ids, dates and booleans of a task, as the driver's classes make them, without the driver, whose start takes a
# third of a second.

package Disbatch::Harness::Types;

use strict;
use warnings;
use overload ();

# The classes as far as they have been made here, with their files.
my %made;

# Gives the place to the real class when somebody loads it. Objects stay what they are: they have the layout of real
# ones.
my $give_way = sub {
    my (undef, $file) = @_;
    my $class = $made{$file} or return;
    # Not for somebody who only tries whether it is installed.
    return unless grep { !ref && -e "$_/$file" } @INC;
    delete $made{$file};
    my $stash = do { no strict 'refs'; \%{"${class}::"} };
    delete $stash->{$_} for grep { !/::\z/ } keys %$stash;
    return;
};

sub define {
    my ($class, $overloads, %methods) = @_;
    (my $file = "$class.pm") =~ s{::}{/}g;
    return if $made{$file} || $INC{$file};
    no strict 'refs';
    *{"${class}::$_"} = $methods{$_} for keys %methods;
    overload::OVERLOAD($class, %$overloads, fallback => 1);
    $made{$file} = $class;
    unshift @INC, $give_way if keys %made == 1;
    return;
}

sub define_oid {
    my $hex = sub { unpack 'H*', $_[0]{oid} };
    my $compare = sub {
        my ($left, $right, $swapped) = @_;
        return $swapped ? "$right" cmp "$left" : "$left" cmp "$right";
    };
    define(
        'BSON::OID',
        { '""' => $hex, 'cmp' => $compare, '<=>' => $compare },
        oid => sub { $_[0]{oid} },
        hex => $hex, value => $hex, to_string => $hex,
        get_time => sub { unpack 'N', substr $_[0]{oid}, 0, 4 },
        TO_JSON  => sub { $ENV{BSON_EXTJSON} ? { '$oid' => $hex->($_[0]) } : $hex->($_[0]) },
        # Whoever wants another one wants the driver.
        new        => sub { load_real('BSON::OID');        shift->new(@_) },
        from_epoch => sub { load_real('BSON::OID'); shift->from_epoch(@_) },
    );
    return;
}

sub define_time {
    my $epoch = sub { $_[0]{value} / 1000 };
    my $iso = sub { Disbatch::Harness::JSON::iso($_[0]{value}) };
    my $number = sub { UNIVERSAL::isa($_[0], 'BSON::Time') ? $_[0]{value} / 1000 : $_[0] };
    my $real = sub { my $method = shift; sub { load_real('BSON::Time'); shift->$method(@_) } };
    define(
        'BSON::Time',
        {
            '""'  => $epoch,
            '0+'  => $epoch,
            '<=>' => sub { my $order = $_[0]{value} / 1000 <=> $number->($_[1]); $_[2] ? -$order : $order },
            'cmp' => sub { my $order = $epoch->($_[0]) cmp $number->($_[1]); $_[2] ? -$order : $order },
        },
        value => sub { $_[0]{value} },
        epoch => $epoch,
        as_iso8601 => $iso,
        op_eq   => sub { $_[0] == $_[1] },
        TO_JSON => sub {
            return $iso->($_[0]) unless $ENV{BSON_EXTJSON};
            return { '$date' => { '$numberLong' => "$_[0]{value}" } };
        },
        map { $_ => $real->($_) } qw(new as_datetime as_datetime_tiny as_mango_time as_time_moment),
    );
    return;
}

# Loads the driver's class, for what is not here.
sub load_real {
    my ($class) = @_;
    (my $file = "$class.pm") =~ s{::}{/}g;
    require $file;
    return;
}

sub oid {
    my ($hex) = @_;
    define_oid();
    # Older drivers have the digits in `value`, and plugins look there.
    return bless { oid => pack('H*', $hex), value => $hex }, 'BSON::OID';
}

sub time_ {
    my ($milliseconds) = @_;
    define_time();
    return bless { value => $milliseconds }, 'BSON::Time';
}

# The driver's booleans come from a module that is small and has its own two objects, by which it knows them.
my @booleans;

sub boolean {
    my ($truth) = @_;
    if (!@booleans) {
        if (eval { require boolean; 1 }) {
            @booleans = (boolean::false(), boolean::true());
        }
        else {
            my ($false, $true) = (0, 1);
            @booleans = (bless(\$false, 'boolean'), bless(\$true, 'boolean'));
            define(
                'boolean',
                { '""' => sub { ${ $_[0] } }, '!' => sub { $booleans[!${ $_[0] }] } },
                TO_JSON => sub { ${ $_[0] } ? \1 : \0 },
            );
        }
    }
    return $booleans[$truth];
}

# Further types of extended JSON, with the driver's class and what makes an object of it. They are rare, and where
# there is no driver they stay as JSON has them.
my %FURTHER = (
    '$binary' => [
        'BSON::Bytes',
        sub {
            my ($class, $value) = @_;
            require MIME::Base64;
            my $data = MIME::Base64::decode_base64($value->{base64});
            return $class->new(data => $data, subtype => hex $value->{subType});
        },
    ],
    '$regularExpression' =>
        ['BSON::Regex', sub { $_[0]->new(pattern => $_[1]{pattern}, flags => $_[1]{options}) }],
    '$timestamp' =>
        ['BSON::Timestamp', sub { $_[0]->new(seconds => $_[1]{t}, increment => $_[1]{i}) }],
    '$numberDecimal' => ['BSON::Decimal128', sub { $_[0]->new(value => $_[1]) }],
    '$minKey'        => ['BSON::MinKey',     sub { $_[0]->new }],
    '$maxKey'        => ['BSON::MaxKey',     sub { $_[0]->new }],
);

# Turns extended JSON into what the driver would have read, in place.
sub revive {
    my ($value) = @_;
    no warnings 'recursion';
    if (ref $value eq 'ARRAY') {
        $_ = revive($_) for @$value;
    }
    elsif (ref $value eq 'HASH') {
        if (keys %$value == 1) {
            my ($key) = keys %$value;
            return special($key, $value) if substr($key, 0, 1) eq '$';
        }
        $_ = revive($_) for values %$value;
    }
    return $value;
}

sub special {
    my ($key, $whole) = @_;
    my $value = $whole->{$key};
    if ($key eq '$oid' && !ref $value && $value =~ /^[0-9a-f]{24}\z/) {
        return oid($value);
    }
    if ($key eq '$date') {
        my $milliseconds = ref $value eq 'HASH' ? $value->{'$numberLong'} : milliseconds($value);
        return time_(0 + $milliseconds) if defined $milliseconds;
    }
    return 0 + $value if $key =~ /^\$number(?:Int|Long)\z/ && !ref $value && $value =~ /^-?[0-9]+\z/;
    if ($key eq '$numberDouble' && !ref $value) {
        my $infinity = 9**9**9;
        return $infinity if $value eq 'Infinity';
        return -$infinity if $value eq '-Infinity';
        return -sin $infinity if $value eq 'NaN';
        return 0 + $value;
    }
    return $value if $key eq '$symbol';
    return undef if $key eq '$undefined';
    if (my $further = $FURTHER{$key}) {
        my ($class, $make) = @$further;
        my $object = eval { load_real($class); $make->($class, $value) };
        return $object if $object;
    }
    $whole->{$key} = revive($value);
    return $whole;
}

# Milliseconds since 1970 of a time as RFC 3339 writes it; undef: it is none.
sub milliseconds {
    my ($text) = @_;
    return undef if ref $text || !defined $text;
    my $two = '([0-9]{2})';
    my ($year, $month, $day, $hour, $minute, $second, $fraction, $sign, $hours, $minutes) = $text =~
        /^([0-9]{4})-$two-${two}T$two:$two:$two(?:\.([0-9]+))?(?:Z|([-+])$two:$two)\z/ or return undef;
    # Years that begin in March have their leap day at the end.
    my $years = $month > 2 ? $year : $year - 1;
    my $days = 365 * $years + int($years / 4) - int($years / 100) + int($years / 400)
        + int((153 * (($month + 9) % 12) + 2) / 5) + $day - 1 - 719_468;
    my $seconds = (($days * 24 + $hour) * 60 + $minute) * 60 + $second;
    $seconds -= ($sign eq '-' ? -60 : 60) * (60 * $hours + $minutes) if defined $sign;
    return 1000 * $seconds + substr(($fraction // '') . '000', 0, 3);
}

# ---------------------------------------------------------------------------------------------------------------
# What plugins know as `workerthread`: the configuration, a logger, and the database when somebody wants it.

package Disbatch;

use strict;
use warnings;

# For plugins that load it by themselves.
$INC{'Disbatch.pm'} = __FILE__;

my %DEFAULTS = (
    attributes => {}, auth => {}, gfs => 'auto', quiet => 0, testing => 0, task_runner => '/usr/bin/task_runner',
    activequeues => [], ignorequeues => [], plugins => [], log4perl => { level => 'DEBUG' },
);

sub new {
    my ($class, %self) = @_;
    $self{class} = lc($self{class} // 'Disbatch');
    $self{node} //= $ENV{DISBATCH_NODE} // do { require Sys::Hostname; Sys::Hostname::hostname() };
    $self{config_file} //= $ENV{DISBATCH_PERL_CONFIG};
    return bless \%self, $class;
}

# Reads the configuration, unless it has been read. A plugin that needs no database needs no configuration either:
# that it cannot be read is said when somebody wants to connect.
sub load_config {
    my ($self) = @_;
    return if defined $self->{config};
    my $config = eval {
        my $file = $self->{config_file} // die "the runner has named none\n";
        open my $handle, '<:raw', $file or die "$file: $!\n";
        my $text = do { local $/; <$handle> };
        my $parsed = eval { Disbatch::Harness::JSON::parse($text, relaxed => 1) } // die "$file: $@";
        ref $parsed eq 'HASH' or die "$file: no object\n";
        $parsed;
    };
    chomp($self->{config_error} = $@) unless $config;
    $config //= {};
    $config->{$_} //= $DEFAULTS{$_} for keys %DEFAULTS;
    # Plugins dump themselves into logs. They need no password but their own.
    my $auth = ref $config->{auth} eq 'HASH' ? $config->{auth} : {};
    $config->{auth} = { map { $_ => $auth->{$_} } grep { $_ eq 'plugin' } keys %$auth };
    $self->{config} = $config;
    return;
}

sub config { my ($self) = @_; $self->load_config; return $self->{config} }

sub logger {
    my ($self, $type) = @_;
    my $category = defined $type ? "$self->{class}.$type" : $self->{class};
    $category =~ s/::/./g;
    $self->load_config;
    return $self->{loggers}{$category} //= Disbatch::Harness::Logger->new($category, $self->{config}{log4perl});
}

sub mongo {
    my ($self) = @_;
    return $self->{mongo} if defined $self->{mongo};
    $self->load_config;
    die "cannot connect to MongoDB: no configuration: $self->{config_error}\n" if defined $self->{config_error};
    my $config = $self->{config};
    for my $key (qw(mongohost database)) {
        next if defined $config->{$key};
        die "cannot connect to MongoDB: $key must be defined in $self->{config_file}\n";
    }
    eval { require MongoDB; 1 }
        or die "cannot load the MongoDB driver for Perl (libmongodb-perl in Debian): $@";
    my %attributes = %{ $config->{attributes} };
    if (ref $attributes{ssl} eq 'HASH' && defined(my $ca = $attributes{ssl}{SSL_ca_file})) {
        # Relative to the configuration: this is the private folder of the task.
        my ($folder) = $self->{config_file} =~ m{^(.*/)};
        $attributes{ssl} = { %{ $attributes{ssl} }, SSL_ca_file => ($folder // '') . $ca } if $ca !~ m{^/};
    }
    if (defined(my $password = $config->{auth}{plugin})) {
        @attributes{qw(username password db_name)} = ('plugin', $password, $config->{database});
    }
    my $client = MongoDB->connect($config->{mongohost}, \%attributes);
    return $self->{mongo} = $client->get_database($config->{database});
}

sub nodes   { $_[0]->mongo->get_collection('nodes') }
sub queues  { $_[0]->mongo->get_collection('queues') }
sub tasks   { $_[0]->mongo->get_collection('tasks') }
sub balance { $_[0]->mongo->get_collection('balance') }

# The text of a file of GridFS, by its id, or by its name and metadata.
sub get_gfs {
    my ($self, $which, $metadata) = @_;
    my $filter = ref $which ? { _id => $which } : { filename => $which };
    if (!ref $which && $metadata) {
        $filter->{"metadata.$_"} = $metadata->{$_} for keys %$metadata;
    }
    my $file = $self->mongo->get_collection('tasks.files')->find_one($filter) or die "no such file in tasks.files\n";
    my $of_file = $self->mongo->get_collection('tasks.chunks')->find({ files_id => $file->{_id} });
    my $chunks = $of_file->sort([n => 1])->result;
    my $text = '';
    while (my $chunk = $chunks->next) {
        my $data = $chunk->{data};
        # Our runner stores as bytes what is no text.
        $data = $data->data if ref $data;
        $text .= $data;
    }
    return $text;
}

# Stores text as a file of GridFS, as runners store output. Returns its id.
sub put_gfs {
    my ($self, $content, $name, $metadata) = @_;
    $content //= '';
    my $bytes = "$content";
    utf8::encode($bytes);
    my $size = 261_120;
    require BSON::OID;
    require BSON::Time;
    require Digest::MD5;
    my $id = BSON::OID->new;
    my $chunks = $self->mongo->get_collection('tasks.chunks');
    for (my $n = 0; $n * $size < length $content; $n++) {
        $chunks->insert_one({ n => $n, data => substr($content, $n * $size, $size), files_id => $id });
    }
    my %file = (
        _id => $id, filename => $name, length => length $bytes, chunkSize => $size,
        uploadDate => BSON::Time->new(value => 1000 * time), md5 => Digest::MD5::md5_hex($bytes),
    );
    $file{metadata} = $metadata if defined $metadata;
    $self->mongo->get_collection('tasks.files')->insert_one(\%file);
    return $id;
}

# What only this project's runner understands. See "Perl plugins" in the documentation.

sub progress {
    my ($self, $percent, $message) = @_;
    my %progress;
    $progress{percent} = 0 + $percent if defined $percent;
    $progress{message} = "$message"   if defined $message;
    return tell_runner(progress => \%progress);
}

sub result  { my ($self, $result) = @_;   return tell_runner(result => $result) }
sub report  { my ($self, $document) = @_; return tell_runner(report => $document) }
sub storage { my ($self, $value) = @_;    return tell_runner(storage => $value) }

my $control;

# Says it on the control channel. False: there is none.
sub tell_runner {
    my ($key, $value) = @_;
    my $number = $ENV{DISBATCH_CONTROL_FD};
    return 0 unless defined $number && $number =~ /^[0-9]+\z/;
    if (!$control) {
        # A copy: what is opened here is closed for programs that are started, and they may use the channel, too.
        open $control, '>&', $number or return 0;
    }
    my $line = Disbatch::Harness::JSON::render({ $key => $value }) . "\n";
    my $at = 0;
    while ($at < length $line) {
        my $written = syswrite $control, $line, length($line) - $at, $at;
        return 0 unless defined $written || $! == 4; # interrupted
        $at += $written // 0;
    }
    return 1;
}

# ---------------------------------------------------------------------------------------------------------------
# What plugins know of Log::Log4perl. Everything goes to standard error, in Disbatch's layout.

package Disbatch::Harness::Logger;

use strict;
use warnings;

my @LEVELS = qw(all trace debug info warn error fatal off);
my %LEVEL = map { $LEVELS[$_] => $_ } 0 .. $#LEVELS;

sub new {
    my ($class, $category, $log4perl) = @_;
    my $level = ref $log4perl eq 'HASH' ? $log4perl->{level} : undef;
    return bless { category => $category, level => lc($level // 'debug') }, $class;
}

sub category { return $_[0]{category} }

sub level {
    my ($self, $level) = @_;
    $self->{level} = lc $level if defined $level;
    return uc $self->{level};
}

for my $level (qw(trace debug info warn error fatal)) {
    no strict 'refs';
    *$level = sub { my $self = shift; return $self->_log($level, @_) };
    *{"is_$level"} = sub { return $_[0]->_is($level) };
}

# The level as text, in whatever letters, or as the number that Log::Log4perl has for it.
sub log {
    my ($self, $level, @message) = @_;
    my %names = (
        5000 => 'trace', 10000 => 'debug', 20000 => 'info', 30000 => 'warn', 40000 => 'error', 50000 => 'fatal',
    );
    return $self->_log($names{$level} // lc $level, @message);
}

sub logdie     { my $self = shift; $self->_log('fatal', @_); die _placed(@_) }
sub error_die  { my $self = shift; $self->_log('error', @_); die _placed(@_) }
sub logwarn    { my $self = shift; $self->_log('warn',  @_); warn _placed(@_) }
sub error_warn { my $self = shift; $self->_log('error', @_); warn _placed(@_) }
sub logexit    { my $self = shift; $self->_log('fatal', @_); exit 1 }
sub logcarp    { my $self = shift; $self->_log('warn',  @_); require Carp; Carp::carp(_message(@_)) }
sub logcluck   { my $self = shift; $self->_log('warn',  @_); require Carp; Carp::cluck(_message(@_)) }
sub logcroak   { my $self = shift; $self->_log('fatal', @_); require Carp; Carp::croak(_message(@_)) }
sub logconfess { my $self = shift; $self->_log('fatal', @_); require Carp; Carp::confess(_message(@_)) }

# Where it goes and how is settled: these have nothing to change.
sub additivity    { return 1 }
sub add_appender  { return 1 }
sub more_logging  { return 1 }
sub less_logging  { return 1 }
sub inc_level     { return 1 }
sub dec_level     { return 1 }

sub _is { my ($self, $level) = @_; return ($LEVEL{$level} // 0) >= ($LEVEL{ $self->{level} } // 0) }

sub _message { return join '', map { ref eq 'CODE' ? $_->() : $_ // '[undef]' } @_ }

sub _placed {
    my $message = _message(@_);
    return $message if $message =~ /\n\z/;
    my (undef, $file, $line) = caller 1;
    return "$message at $file line $line.\n";
}

sub _log {
    my ($self, $level, @message) = @_;
    return unless $self->_is($level);
    my $depth = 0;
    $depth++ while (caller $depth)[0] eq __PACKAGE__;
    my ($package, $file, $number) = caller $depth;
    $file =~ s{.*/}{};
    my ($second, $minute, $hour, $day, $month, $year) = localtime;
    my $line = sprintf '[%s] %04d/%02d/%02d %02d:%02d:%02d %s %d %s %s> %s', uc $level, $year + 1900, $month + 1,
        $day, $hour, $minute, $second, $file, $number, $package, $self->{category}, _message(@message);
    chomp $line;
    utf8::encode($line) if utf8::is_utf8($line);
    local ($\, $,);
    print {*STDERR} "$line\n";
    return 1;
}

# ---------------------------------------------------------------------------------------------------------------
# One task.

package Disbatch::Harness;

use strict;
use warnings;

# Children that the plugin forks may come out of run() as well. They have no say.
my $process = $$;
my $is_answered;

# This is the last of them to be run, since it is the first to be seen: whatever a plugin does at its end, the answer
# has been given.
END { $? = 0 if $is_answered && $$ == $process }

sub main {
    my ($class, @libs) = options(@ARGV);
    unshift @INC, @libs;
    # What is printed is seen at once, and by no child a second time.
    $| = 1;
    my $task = read_task();
    # Plugins may change the environment, too.
    my $folder = $ENV{DISBATCH_WORK_DIR};
    my $id = $ENV{DISBATCH_TASK_ID} // (ref $task->{_id} ? $task->{_id}->hex : 'task');
    my $logger = Disbatch->new(class => 'task_runner')->logger;
    @ARGV = ();
    my $result = perform($class, $task, $id, $logger);
    if ($$ != $process) {
        $logger->error("A process that the plugin has forked came back from it. What it returns does not count");
        exit 1;
    }
    # One that it has forgotten.
    alarm 0;
    answer($folder, $id, verified($result, $id, $logger));
    exit 0;
}

sub options {
    my @arguments = @_;
    my ($class, @libs);
    while (@arguments) {
        my $option = shift @arguments;
        my $value = shift @arguments;
        if    ($option eq '--class' && defined $value) { $class = $value }
        elsif ($option eq '--lib'   && defined $value) { push @libs, $value }
        else                                           { undef $class; last }
    }
    return ($class, @libs) if defined $class;
    print {*STDERR} "usage: disbatch-perl.pl --class NAME [--lib FOLDER]...\n";
    exit 2;
}

# The task as the driver would have read it.
sub read_task {
    binmode STDIN;
    my $line = do { local $/ = "\n"; <STDIN> };
    # The plugin and its children find nothing there, as with Perl's runner.
    open STDIN, '<', '/dev/null' or die "cannot open /dev/null: $!\n";
    my $booleans = \&Disbatch::Harness::Types::boolean;
    my $task = eval { Disbatch::Harness::JSON::parse($line // '', booleans => $booleans) };
    if (ref $task ne 'HASH') {
        print {*STDERR} "standard input has no task: ", $@ || "no object\n";
        exit 1;
    }
    return Disbatch::Harness::Types::revive($task);
}

# Runs the plugin. Returns what it has returned, or a failure in the words of Disbatch.
sub perform {
    my ($class, $task, $id, $logger) = @_;
    my ($package, $is_old, $why) = find($class);
    if (!defined $package) {
        $logger->error("$class not found for task $id: $why");
        return { status => 2, stdout => 'Unable to start', stderr => "$class not found for task $id\n$why" };
    }
    my $workerthread = Disbatch->new(class => $class);
    $workerthread->load_config;
    my $result;
    my $has_ended = eval {
        my $object = $is_old
            ? old($package, $task, $workerthread)
            : $package->new(workerthread => $workerthread, task => $task);
        # In scalar context: of a list, the last value counts.
        $result = $object->run;
        1;
    };
    if (!$has_ended) {
        my $stderr = 'Thread has uncaught exception: ' . Disbatch::Harness::JSON::text_of($@);
        $logger->error($stderr);
        return { status => 2, stdout => 'Unable to complete', stderr => $stderr };
    }
    return $result;
}

# The class to use, whether it is one of Disbatch 3, and if there is none, why. Those of Disbatch 3 have the task in a
# package of its own, Class::Task.
sub find {
    my ($class) = @_;
    return (undef, undef, "'$class' is no name of a package") unless $class =~ /^\w+(?:::\w+)*\z/;
    my $why = loaded($class);
    return ($class, 0) if !defined $why && $class->can('new') && $class->can('run');
    (my $file = "$class.pm") =~ s{::}{/}g;
    my $old = "${class}::Task";
    if (!defined $why || $why =~ /^Can't locate \Q$file\E /) {
        return ($old, 1) if $old->can('run') || !defined loaded($old) && $old->can('run');
    }
    # It may have its methods by AUTOLOAD. If it has none, calling them says so.
    return ($class, 0) unless defined $why;
    return (undef, undef, $why);
}

# Loads it as `use` does. Returns why not.
sub loaded {
    my ($class) = @_;
    # In a package without anything of ours that it could take the place of, by what it exports.
    return undef if eval "package main; use $class; 1";
    my $why = "$@";
    # Where in here it was tried is nobody's business.
    $why =~ s/^BEGIN failed--compilation aborted at \(eval [0-9]+\) line 1\.\n\z//m;
    $why =~ s/ at \(eval [0-9]+\) line 1\.$//m;
    $why =~ s/(\(\@INC contains:) CODE\(0x[0-9a-f]+\)/$1/;
    return $why;
}

# Disbatch 3 gave a class queue and parameters, and set the rest by itself. Those behind them are for classes that
# have moved on since, and only kept the name.
sub old {
    my ($package, $task, $workerthread) = @_;
    my $params = $task->{params} // $task->{parameters};
    my $object = $package->new({ id => $task->{queue} }, $params, workerthread => $workerthread, task => $task);
    if (ref $object ne 'HASH' && UNIVERSAL::isa($object, 'HASH')) {
        $object->{workerthread} //= $workerthread;
        $object->{id} //= $task->{_id};
    }
    return $object;
}

# A result that is one, with a status that is one: a positive integer, or text that is one. Anything else is a
# failure.
sub verified {
    my ($result, $id, $logger) = @_;
    if (ref $result ne 'HASH') {
        $logger->error("Task $id did not return a HASH");
        require Data::Dumper;
        my $dumped = Data::Dumper::Dumper($result);
        my $why = 'Task did not return a HASH. See stdout for Dumper result';
        return { status => 2, stdout => $dumped, stderr => $why };
    }
    my $status = $result->{status};
    if (ref $status || !defined $status || $status !~ /^[1-9][0-9]*$/) {
        my $shown = ref $status ? 'a ref' : defined $status ? "'$status'" : 'nothing';
        $logger->error("Task $id returned other than a positive integer as status: $shown");
        $status = 2;
    }
    return { status => 0 + $status, stdout => $result->{stdout}, stderr => $result->{stderr} };
}

# Puts the answer where the runner looks for it, whole or not at all. Without a private folder somebody tries a
# plugin by hand, and sees it.
sub answer {
    my ($folder, $id, $result) = @_;
    my $json = do { local $Disbatch::Harness::JSON::is_plain = 1; Disbatch::Harness::JSON::render($result) };
    $json = '{"raw":true,' . substr($json, 1) . "\n";
    # What the plugin has set is for its own files.
    local ($\, $,);
    if (!defined $folder) {
        print $json;
        $is_answered = 1;
        return;
    }
    umask 022;
    # It may have closed what is opened here in its place.
    no warnings 'io';
    my $path = "$folder/$id-response.json";
    my $is_written = eval {
        open my $file, '>:raw', "$path.new" or die "$!\n";
        (print {$file} $json) && close $file or die "$!\n";
        rename "$path.new", $path or die "$!\n";
    };
    if (!$is_written) {
        print {*STDERR} "cannot write the answer $path: $@";
        exit 1;
    }
    $is_answered = 1;
    return;
}

main() unless caller;

1;
